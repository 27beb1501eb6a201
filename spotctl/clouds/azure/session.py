"""The only door to Azure's SDKs: credentials, clients, paging, retries and errors."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from azure.core import PipelineClient
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy
from azure.core.rest import HttpRequest, HttpResponse
from azure.mgmt.resourcegraph import ResourceGraphClient
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.azure.cloud import AZURE_SIGN_IN, AzureSettings
from spotctl.clouds.errors import NOT_KEPT, Answers, ApiCall, first_line, is_plain_http

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential

__all__ = ["ArmAnswer", "AzureSession", "NoToken", "SharedToken", "TokenCredential", "cause_of"]

_ROWS_PER_PAGE = 1000
_RENEW_SECONDS = 300
_LONGEST_MESSAGE = 160
_LONGEST_CAUSE = 500
_LATER = "try again later"
VALIDATION_SECONDS = 120.0
"""How long the validation of an order may take, or what is waited for."""

POLL_SECONDS = 1.0


_CLIENTS: Mapping[str, str] = {
    "authorization": "azure.mgmt.authorization.v2022_04_01:AuthorizationManagementClient",
    "compute": "azure.mgmt.compute:ComputeManagementClient",
    "deployments": "azure.mgmt.resource.deployments:DeploymentsMgmtClient",
    "monitor": "azure.mgmt.monitor:MonitorManagementClient",
    "resources": "azure.mgmt.resource.resources:ResourceManagementClient",
}
"""The client of each SDK; an SDK is imported when it is first used."""
_STORAGE_SCOPE = "https://storage.azure.com/.default"


@dataclass(frozen=True, slots=True)
class ArmAnswer:
    """An answer of Resource Manager, and when it was sent; `body` is empty where it sent none."""

    status: int
    body: Mapping[str, Any]
    date: str = ""


class SharedToken:
    """One token for all threads: the Azure CLI and similar credentials start a process for each
    token.
    """

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential
        self._lock = threading.Lock()
        self._token: AccessToken | None = None

    # As the SDK declares it.
    def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:  # noqa: ANN401
        """The current token while it is valid; with claims, a new one that satisfies them."""
        with self._lock:
            if (
                self._token is None
                or claims
                or self._token.expires_on - time.time() < _RENEW_SECONDS
            ):
                self._token = self._credential.get_token(*scopes, claims=claims, **options)
            return self._token


class _OwnHost(SansIOHTTPPolicy[Any, Any]):
    """Sends nothing to another host, to which a page may link: each request carries a token."""

    def __init__(self, host: str) -> None:
        self._host = host

    def on_request(self, request: Any) -> None:  # noqa: ANN401  # as the SDK declares it
        if (host := urlsplit(request.http_request.url).hostname) != self._host:
            raise NoAnswer(f"Azure: the answer links to another host, {host}", _LATER)


class _AskedOnce(HTTPPolicy[Any, Any]):
    """Sends no question twice."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    def send(self, request: Any) -> Any:  # noqa: ANN401  # as the SDK declares it
        asked = request.http_request
        if asked.method != "GET":
            return self.next.send(request)
        return self._answers.of(("azure", asked.url), partial(self.next.send, request))


class NoToken:
    """The credential for endpoints over plain HTTP: the SDK requires one, but no token may be sent
    there.
    """

    # As the SDK declares it.
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401
        """Always raises."""
        problem = f"no token for {scopes} is sent over plain HTTP (options {sorted(options)})"
        raise MissingCredentials(problem)


class AzureSession:
    """Azure's APIs for one subscription. Each thread has clients of its own, which keep their
    connections. Of `answers` that are kept, none is asked for twice."""

    def __init__(
        self,
        subscription: str,
        settings: AzureSettings,
        credential: TokenCredential,
        answers: Answers = NOT_KEPT,
    ) -> None:
        self.subscription = subscription
        self._answers = answers
        self._settings = settings
        self._credential = credential
        self._of_thread = threading.local()

    @classmethod
    def sign_in(
        cls,
        settings: AzureSettings,
        credential: TokenCredential | None = None,
        answers: Answers = NOT_KEPT,
    ) -> AzureSession:
        """The session for the subscription that settings or environment name, after getting a first
        token.

        Without a `credential`, `DefaultAzureCredential` looks for one in the environment, the Azure
        CLI and so on.
        """
        subscription = settings.chosen_subscription()
        _silence_sdk()
        if is_plain_http(settings.endpoint):
            return cls(subscription, settings, NoToken(), answers)

        session = cls(
            subscription,
            settings,
            SharedToken(credential or _default_credential(settings)),
            answers,
        )

        with session._translated(ApiCall(f"Azure sign-in for {settings.endpoint}", "a token")):
            session._credential.get_token(f"{settings.endpoint}/.default")
        return session

    @property
    def subscription_id(self) -> str:
        """The id of the subscription as a resource."""
        return f"/subscriptions/{self.subscription}"

    def principal(self) -> tuple[str, str]:
        """The object id and the kind of who is signed in; empty if the sign-in's tokens do not say
        it."""
        token, _ = storage_token(self._settings)
        with suppress(IndexError, KeyError, ValueError):
            claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
            # Only users delegate scopes to an application, such as the Azure CLI.
            kind = "User" if "scp" in claims else "ServicePrincipal"
            return str(claims["oid"]), kind
        return "", ""

    @property
    def host(self) -> str:
        """The host of the management endpoint."""
        return urlsplit(self._settings.endpoint).hostname or ""

    def rows(self, call: ApiCall, query: str) -> Iterator[list[Any]]:
        """The pages of a Resource Graph query's result."""
        options = QueryRequestOptions(top=_ROWS_PER_PAGE, result_format="objectArray")
        request = QueryRequest(query=query, subscriptions=[self.subscription], options=options)
        with ResourceGraphClient(
            self._credential, self._settings.endpoint, **self._client_options()
        ) as client:
            while True:
                with self._translated(call):
                    # A query changes nothing, so it may be repeated although it is a POST.
                    answer = client.resources(request, retry_on_methods=frozenset({"POST"}))
                    rows: object = answer.data
                if not isinstance(rows, list):
                    raise NoAnswer(f"{call.what}: the answer's data is not a list", _LATER)
                yield rows
                if not answer.skip_token:
                    break
                options.skip_token = answer.skip_token

        if answer.result_truncated == "true":
            raise NoAnswer(f"{call.what}: Resource Graph truncated its answer", _LATER)

    def carry_out(
        self,
        call: ApiCall,
        method: str,
        *named: Any,  # noqa: ANN401
        owner: str = "",
        waits: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> ArmAnswer:  # as the SDKs declare them
        """Calls `CLIENT.GROUP.METHOD` of an SDK, and returns the answer as Resource Manager sent
        it.

        What Azure is still carrying out is not waited for, except validations and what `waits`.
        `owner` is a subscription other than the session's.
        """
        with self._answered(call):
            called = self._method(method, owner)
            answer: ArmAnswer
            if waits or method.endswith(".begin_validate"):
                poller = called(*named, polling_interval=POLL_SECONDS, cls=_answer_of, **options)
                poller.wait(VALIDATION_SECONDS)
                answer = poller.result() if poller.done() else ArmAnswer(202, {})
            elif ".begin_" in method:
                answer = called(*named, polling=False, cls=_answer_of, **options).result()
            else:
                answer = called(*named, cls=_answer_of, **options)
            return answer

    def items(
        self,
        call: ApiCall,
        method: str,
        *named: Any,  # noqa: ANN401
        owner: str = "",
        **options: Any,  # noqa: ANN401
    ) -> Iterator[Any]:  # see above
        """Everything that a listing of an SDK has, as JSON or as models that can be read as
        such."""
        with self._answered(call):
            listed = self._method(method, owner)(*named, cls=_json_of_items, **options)
        while True:
            with self._answered(call):
                item = next(listed, None)
            if item is None:
                return
            yield item

    # See above.
    def names(self, call: ApiCall, method: str, *named: Any) -> list[str]:  # noqa: ANN401
        """The names of a list that an SDK returns at once."""
        with self._answered(call):
            return [str(model.name) for model in self._method(method)(*named)]

    # See above.
    def pages(self, call: ApiCall, method: str, *named: Any, **options: Any) -> Iterator[list[Any]]:  # noqa: ANN401
        """The pages of a listing. A refusal raises what a query raises."""
        with self._translated(call):
            pages = self._method(method)(*named, **options).by_page()
        while True:
            with self._translated(call):
                page = next(pages, None)
                items = None if page is None else list(page)
            if items is None:
                return
            yield items

    def _method(self, method: str, owner: str = "") -> Callable[..., Any]:
        """A method of an SDK's client, whose connections are kept for the thread's next calls."""
        client, group, name = method.split(".")
        known: dict[tuple[str, str], Any] = self._of_thread.__dict__.setdefault("clients", {})
        if (client, owner) not in known:
            module, _, kind = _CLIENTS[client].partition(":")
            made = getattr(import_module(module), kind)
            subscription, options = owner or self.subscription, self._client_options()
            options["base_url"] = self._settings.endpoint
            known[client, owner] = made(self._credential, subscription, **options)

        methods = getattr(known[client, owner], group)
        called: Callable[..., Any] = getattr(methods, name)
        return called

    @contextmanager
    def _answered(self, call: ApiCall) -> Iterator[None]:
        """Raises a refusal with the code and text of the error that caused it: Resource Manager
        wraps errors of a deployment's resources."""
        with self._translated(call):
            try:
                yield
            except HttpResponseError as error:
                if error.response is None:
                    raise
                answered: Mapping[str, Any] = {}
                with suppress(TypeError, ValueError):  # a proxy may have answered
                    answered = _json_of(error.response)
                raise _refusal(error.response, answered, call) from error

    def download(self, call: ApiCall, url: str) -> bytes:
        """The content behind a signed link. No token is sent: the signature is the right to read
        the content.
        """
        with (
            PipelineClient[HttpRequest, HttpResponse](url, policies=[]) as client,
            self._translated(call),
        ):
            answer = client.send_request(HttpRequest("GET", url))
            answer.raise_for_status()
            return answer.read()

    @contextmanager
    def _translated(self, call: ApiCall) -> Iterator[None]:
        """Turns an SDK error into the `CloudError` to handle."""
        try:
            yield
        except ClientAuthenticationError as error:
            problem = f"{call.what}: the credentials are missing, wrong or expired, {_shown(error)}"
            raise MissingCredentials(problem, AZURE_SIGN_IN) from error
        except HttpResponseError as error:
            raise _error_of_answer(
                error, call, f"{call.permission} on /subscriptions/{self.subscription}"
            ) from error
        except AzureError as error:
            raise NoAnswer(
                f"{call.what}: no answer, {_shown(error)}", "check the network, or try again later"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The SDKs take an answer apart before they check that it is what they expect.
            problem = f"{call.what}: the answer is not as documented, {_shown(error)}"
            raise NoAnswer(problem, _LATER) from error

    def _client_options(self) -> dict[str, Any]:
        settings = self._settings
        once = [_AskedOnce(self._answers)] if self._answers.kept else []
        options: dict[str, Any] = {
            "credential_scopes": [f"{settings.endpoint}/.default"],
            "per_call_policies": [_OwnHost(self.host), *once],
            "retry_total": settings.retries,
            "retry_connect": settings.retries,
            "retry_read": settings.retries,
            "retry_status": settings.retries,
            "retry_backoff_factor": settings.backoff_seconds,
            "retry_backoff_max": settings.longest_wait_seconds,
            "connection_timeout": settings.timeout_seconds,
            "read_timeout": settings.timeout_seconds,
        }

        if is_plain_http(settings.endpoint):
            options["authentication_policy"] = SansIOHTTPPolicy()
        return options


def _answer_of(answered: Any, *_: object) -> ArmAnswer:  # noqa: ANN401  # the SDKs' answers
    response = answered.http_response
    return ArmAnswer(response.status_code, _json_of(response), response.headers.get("date", ""))


def _json_of_items(items: Iterable[Any]) -> list[Any]:
    """The items of a page as JSON; models of the newer SDKs can be read as such."""
    return [
        item if isinstance(item, Mapping) else item.serialize(keep_readonly=True) for item in items
    ]


def storage_token(
    settings: AzureSettings, credential: TokenCredential | None = None
) -> tuple[str, float]:
    """A token for Blob Storage, and its validity in seconds; the credential is that of
    `AzureSession.sign_in`.
    """
    _silence_sdk()
    try:
        token = (credential or _default_credential(settings)).get_token(_STORAGE_SCOPE)
    except AzureError as error:
        raise MissingCredentials(
            f"Azure sign-in for Blob Storage: {_shown(error)}", AZURE_SIGN_IN
        ) from error
    return token.token, token.expires_on - time.time()


def _default_credential(settings: AzureSettings) -> TokenCredential:
    from azure.identity import DefaultAzureCredential

    probes_metadata = settings.managed_identity or os.environ.get("AZURE_TOKEN_CREDENTIALS")
    exclusions = {} if probes_metadata else {"exclude_managed_identity_credential": True}
    try:
        return DefaultAzureCredential(**exclusions)
    except ValueError as error:
        raise MissingCredentials(
            f"Azure credentials cannot be used, {_shown(error)}", AZURE_SIGN_IN
        ) from error


def _silence_sdk() -> None:
    """Keeps the SDK's warnings off the terminal: its errors repeat them. A log level that was set
    before stays.
    """
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def _error_of_answer(error: HttpResponseError, call: ApiCall, needed: str) -> CloudError:
    status = error.status_code or 0
    code = str(getattr(error.error, "code", None) or status or "")
    if status == 403:
        return AccessDenied(
            f"{call.what}: {needed} is denied, {_shown(error)}",
            "ask for the role Reader there",
            code,
        )
    if (
        code == "SubscriptionNotFound"
    ):  # also where the subscription exists, but not for these credentials
        problem = f"{call.what}: the subscription cannot be found, {_shown(error)}"
        return AccessDenied(problem, "check AZURE_SUBSCRIPTION_ID", code)
    if status == 404:
        return UnknownResource(
            f"{call.what}: {needed} finds nothing, {_shown(error)}", "check the name", code
        )

    answered = f"HTTP {status}, " if status else ""
    if status == 429:
        return RateLimited(f"{call.what}: throttled, {answered}{_shown(error)}", _LATER, code)
    if 400 <= status < 500:
        return RequestRejected(
            f"{call.what}: refused, {answered}{_shown(error)}", "check the request", code
        )

    return NoAnswer(f"{call.what}: no usable answer, {answered}{_shown(error)}", _LATER, code)


def _json_of(response: Any) -> dict[str, Any]:  # noqa: ANN401  # responses of two kinds of clients
    text = response.text()
    value = json.loads(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise TypeError("it is not an object")
    return value


# See above.
def _refusal(response: Any, answered: Mapping[str, Any], call: ApiCall) -> CloudError:  # noqa: ANN401
    status = response.status_code
    code, message = cause_of(answered.get("error"))
    said = (
        f"{call.what}: "
        f"{first_line(ValueError(f'{code} {message}'.strip() or f'HTTP {status}'), _LONGEST_CAUSE)}"
    )
    if status == 401:
        return MissingCredentials(said, AZURE_SIGN_IN, code)
    if status == 403:
        return AccessDenied(said, f"it needs {call.permission}", code)
    if code == "SubscriptionNotFound":
        return AccessDenied(said, "check AZURE_SUBSCRIPTION_ID", code)

    if status == 404:
        # Without a code, it was not Resource Manager that answered, and nothing is known to be
        # missing.
        return UnknownResource(said, code=code) if code else NoAnswer(said, _LATER)
    if status == 429:
        pause = response.headers.get("Retry-After")
        return RateLimited(said, f"try again after {pause} seconds" if pause else _LATER, code)

    return RequestRejected(said, code=code) if status < 500 else NoAnswer(said, _LATER, code)


def cause_of(error: object) -> tuple[str, str]:
    """The code and message of the error inside Resource Manager's errors, which hold it as details
    or as JSON text.
    """
    if not isinstance(error, Mapping):
        return "", ""

    message = str(error.get("message") or "")
    inner = [detail for detail in error.get("details") or () if isinstance(detail, Mapping)]
    if message.lstrip().startswith("{"):
        with suppress(ValueError):
            inner.append(json.loads(message).get("error"))

    causes = [cause for cause in map(cause_of, inner) if cause[0]]
    return causes[0] if causes else (str(error.get("code") or ""), message)


def _shown(error: BaseException) -> str:
    return first_line(error, _LONGEST_MESSAGE)
