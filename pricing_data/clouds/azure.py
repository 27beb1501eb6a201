"""The only door to Azure's SDKs: credentials, clients, paging, retries and errors."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.rest import HttpRequest, HttpResponse
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.resourcegraph import ResourceGraphClient
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from pricing_data.clouds.base import ApiCall, first_line
from pricing_data.clouds.settings import AZURE_SIGN_IN, AzureSettings
from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential
    from azure.core.paging import ItemPaged

__all__ = ["AzureSession", "NoToken", "SharedToken", "TokenCredential"]

T = TypeVar("T")

_ROWS_PER_PAGE = 1000
_RENEW_SECONDS = 300
_LONGEST_MESSAGE = 160
_LATER = "try again later"


class SharedToken:
    """One token for all threads: the Azure CLI and similar credentials start a process for each token."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential
        self._lock = threading.Lock()
        self._token: AccessToken | None = None

    def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:  # noqa: ANN401  # as the SDK declares it
        """The current token while it is valid; with claims, a new one that satisfies them."""
        with self._lock:
            if self._token is None or claims or self._token.expires_on - time.time() < _RENEW_SECONDS:
                self._token = self._credential.get_token(*scopes, claims=claims, **options)
            return self._token


class NoToken:
    """The credential for endpoints over plain HTTP: the SDK requires one, but no token may be sent there."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401  # as the SDK declares it
        """Always raises."""
        raise MissingCredentials(f"no token for {scopes} is sent over plain HTTP (options {sorted(options)})")


class AzureSession:
    """Azure's APIs for one subscription. Each call opens its own client: clients must not be shared by threads."""

    def __init__(self, subscription: str, settings: AzureSettings, credential: TokenCredential) -> None:
        self.subscription = subscription
        self._settings = settings
        self._credential = credential

    @classmethod
    def sign_in(cls, settings: AzureSettings, credential: TokenCredential | None = None) -> AzureSession:
        """The session for the subscription that settings or environment name, after getting a first token.

        Without a `credential`, `DefaultAzureCredential` looks for one in the environment, the Azure CLI and so on.
        """
        subscription = settings.chosen_subscription()
        _silence_sdk()
        if not settings.sends_tokens:
            return cls(subscription, settings, NoToken())
        session = cls(subscription, settings, SharedToken(credential or _default_credential(settings)))
        with session._translated(ApiCall(f"Azure sign-in for {settings.endpoint}", "a token")):
            session._credential.get_token(_scope(settings))
        return session

    def pages(self, call: ApiCall, listing: Callable[[ComputeManagementClient], ItemPaged[T]]) -> Iterator[list[T]]:
        """The pages of a listing of the compute API; for example `lambda compute: compute.usage.list("eastus")`."""
        with self._compute() as client:
            with self._translated(call):
                pages = listing(client).by_page()
            while True:
                with self._translated(call):
                    page = next(pages, None)
                    items = None if page is None else list(page)
                if items is None:
                    return
                yield items

    def rows(self, call: ApiCall, query: str) -> Iterator[list[Any]]:
        """The pages of a Resource Graph query's result."""
        options = QueryRequestOptions(top=_ROWS_PER_PAGE, result_format="objectArray")
        request = QueryRequest(query=query, subscriptions=[self.subscription], options=options)
        with ResourceGraphClient(self._credential, self._settings.endpoint, **self._client_options()) as client:
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

    def get(self, call: ApiCall, path: str, api_version: str) -> HttpResponse:
        """The answer of a Resource Manager path below the subscription, such as `providers/X/permissions`."""
        url = f"{self._settings.endpoint}/subscriptions/{self.subscription}/{path}"
        with self._compute() as client, self._translated(call):
            answer = client.send_request(HttpRequest("GET", url, params={"api-version": api_version}))
            answer.raise_for_status()
            return answer

    def _compute(self) -> ComputeManagementClient:
        return ComputeManagementClient(
            self._credential, self.subscription, self._settings.endpoint, **self._client_options()
        )

    @contextmanager
    def _translated(self, call: ApiCall) -> Iterator[None]:
        """Turns an SDK error into the `CloudError` to handle."""
        try:
            yield
        except ClientAuthenticationError as error:
            raise MissingCredentials(
                f"{call.what}: the credentials are missing, wrong or expired, {_shown(error)}", AZURE_SIGN_IN
            ) from error
        except HttpResponseError as error:
            raise _error_of_answer(error, call, f"{call.permission} on /subscriptions/{self.subscription}") from error
        except AzureError as error:
            raise NoAnswer(
                f"{call.what}: no answer, {_shown(error)}", "check the network, or try again later"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The SDKs take an answer apart before they check that it is what they expect.
            raise NoAnswer(f"{call.what}: the answer is not as documented, {_shown(error)}", _LATER) from error

    def _client_options(self) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            "credential_scopes": [_scope(settings)],
            "retry_total": settings.retries,
            "retry_connect": settings.retries,
            "retry_read": settings.retries,
            "retry_status": settings.retries,
            "retry_backoff_factor": settings.backoff_seconds,
            "retry_backoff_max": settings.longest_wait_seconds,
            "connection_timeout": settings.timeout_seconds,
            "read_timeout": settings.timeout_seconds,
        }
        if not settings.sends_tokens:
            options["authentication_policy"] = SansIOHTTPPolicy()
        return options


def _scope(settings: AzureSettings) -> str:
    return f"{settings.endpoint}/.default"


def _default_credential(settings: AzureSettings) -> TokenCredential:
    from azure.identity import DefaultAzureCredential

    probes_metadata = settings.managed_identity or os.environ.get("AZURE_TOKEN_CREDENTIALS")
    exclusions = {} if probes_metadata else {"exclude_managed_identity_credential": True}
    try:
        return DefaultAzureCredential(**exclusions)
    except ValueError as error:
        raise MissingCredentials(f"Azure credentials cannot be used, {_shown(error)}", AZURE_SIGN_IN) from error


def _silence_sdk() -> None:
    """Keeps the SDK's warnings off the terminal: its errors repeat them. A log level that was set before stays."""
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def _error_of_answer(error: HttpResponseError, call: ApiCall, needed: str) -> CloudError:
    status = error.status_code or 0
    code = str(getattr(error.error, "code", None) or status or "")
    if status == 403:
        return AccessDenied(f"{call.what}: {needed} is denied, {_shown(error)}", "ask for the role Reader there", code)
    if code == "SubscriptionNotFound":  # also where the subscription exists, but not for these credentials
        problem = f"{call.what}: the subscription cannot be found, {_shown(error)}"
        return AccessDenied(problem, "check AZURE_SUBSCRIPTION_ID", code)
    if status == 404:
        return UnknownResource(f"{call.what}: {needed} finds nothing, {_shown(error)}", "check the name", code)
    answered = f"HTTP {status}, " if status else ""
    if status == 429:
        return RateLimited(f"{call.what}: throttled, {answered}{_shown(error)}", _LATER, code)
    if 400 <= status < 500:
        return RequestRejected(f"{call.what}: refused, {answered}{_shown(error)}", "check the request", code)
    return NoAnswer(f"{call.what}: no usable answer, {answered}{_shown(error)}", _LATER, code)


def _shown(error: BaseException) -> str:
    return first_line(error, _LONGEST_MESSAGE)
