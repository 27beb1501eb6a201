"""The only door to Google's SDK: credentials, clients, paging, retries and errors.

Requests are given as dictionaries with the field names of the SDK's messages, and answers are the
SDK's messages, so that callers need no import of it. Use `insert_unary` and the `wait` of
`ZoneOperations` for operations: the futures that `insert` returns poll the production endpoint even
where another endpoint is set.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlsplit

import google.auth
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth import jwt
from google.auth.api_key import Credentials as ApiKey
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession, Request as AuthRequest
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError
from requests import exceptions as http
from urllib3.exceptions import NewConnectionError

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.errors import NOT_KEPT, Answers, ApiCall, first_line, is_plain_http, on_one_line
from spotctl.clouds.gcp.cloud import GcpSettings

PAGE_ROWS = 500
"""The largest page that Compute Engine returns."""

_BILLING_PAGE_ROWS = 5000  # the largest page that Cloud Billing returns
_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]*")
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_SLOWEST_RETRY_SECONDS = 30.0
_LONGEST_WORDS = 500
# The field of each service's list.
_SCOPED = {
    "Instances": "instances",
    "Disks": "disks",
    "Addresses": "addresses",
    "GlobalOperations": "operations",
    "ResourcePolicies": "resource_policies",
}
# Compute Engine reports an exceeded rate as 403 with one of these reasons, as well as by 429.
_RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
# Errors of the SDK over an answer that the API does not document. `AttributeError`, because
# google-api-core assumes that an error's body, if it is JSON at all, is an object that contains an
# object.
_UNDOCUMENTED_ANSWER = (ParseError, UnicodeDecodeError, AttributeError)
_LOST_CONNECTION = (http.ConnectionError, http.ChunkedEncodingError, http.Timeout, TransportError)
_SIGN_IN = (
    "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default "
    "login`"
)
_LATER = "try again later"


ACT_AS = "iam.serviceAccounts.actAs"
"""Needed to give a machine its service account. Who has it in the whole project may act as every
account there, so it is granted on the machines' account only, and is no part of the printed
role."""

_STORAGE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class UnreachedScopes(NoAnswer):
    """Some zones or regions did not answer; others did."""

    def __init__(self, problem: str, scopes: Sequence[str]) -> None:
        super().__init__(problem, _LATER)
        self.scopes = tuple(scopes)


class GcpSession(AbstractContextManager["GcpSession"]):
    """Google's APIs for the duration of a `with` block; nothing is contacted before the first call.
    Of `answers` that are kept, none is asked for twice."""

    def __init__(self, settings: GcpSettings, answers: Answers = NOT_KEPT) -> None:
        self._settings, self._answers = settings, answers
        self._open = ExitStack()
        self._clients: dict[str, Any] = {}

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def compute_host(self) -> str:
        """The host that answers calls to Compute Engine."""
        endpoint = (
            self._settings.compute_endpoint
            or f"https://{compute_v1.InstancesClient.DEFAULT_ENDPOINT}"
        )
        return urlsplit(endpoint).hostname or ""

    @cached_property
    def project(self) -> str:
        """The project of the settings, the environment or the default credentials."""
        project = self._settings.project or os.environ.get(_PROJECT)
        if not project and not is_plain_http(self._settings.compute_endpoint):
            with translated(ApiCall("signing in", "an identity")):
                project = self._default_identity[1]

        if not project:
            raise MissingCredentials(
                "gcp: no project is set", f"set {_PROJECT}, or gcp_project in spotctl's settings"
            )
        return checked_name("project", project)

    def answer(
        self, call: ApiCall, service: str, method: str, request: Mapping[str, object]
    ) -> Any:  # noqa: ANN401  # the SDK's messages are not annotated
        """The answer of a Compute Engine method; for example service `Regions`, method `get`."""
        with self._translated(call):
            ask = partial(
                getattr(self._compute(service), method),
                request=dict(request),
                **self._call_options(),
            )
            return self._answers.of((service, method, repr(sorted(request.items()))), ask)

    def pages(
        self, call: ApiCall, service: str, request: Mapping[str, object]
    ) -> Iterator[list[Any]]:
        """The pages of a Compute Engine service's list."""
        with self._translated(call):
            limited = {**request, "max_results": PAGE_ROWS}
            ask = partial(self._compute(service).list, request=limited, **self._call_options())
            question = service, repr(sorted(request.items()))
            for page in (
                self._answers.of(question, lambda: list(ask().pages))
                if self._answers.kept
                else ask().pages
            ):
                yield list(page.items)

    def scoped(self, call: ApiCall, service: str, request: Mapping[str, object]) -> Iterator[Any]:
        """Everything that a Compute Engine service lists in all zones and regions.

        Raises UnreachedScopes at the end if some did not answer.
        """
        unreached = set[str]()
        with self._translated(call):
            limited = {**request, "max_results": PAGE_ROWS}
            listed = self._compute(service).aggregated_list(request=limited, **self._call_options())
            for page in listed.pages:
                unreached.update(scope.rpartition("/")[2] for scope in page.unreachables)
                for scope, listing in page.items.items():
                    if listing.warning.code == "UNREACHABLE":
                        unreached.add(scope.rpartition("/")[2])
                    yield from getattr(listing, _SCOPED[service])

        if unreached:
            problem = f"gcp: {call.what}: no answer from {', '.join(sorted(unreached))}"
            raise UnreachedScopes(problem, sorted(unreached))

    def price_list(self, call: ApiCall, service: str) -> Iterator[Any]:
        """The SKUs of a service in the Cloud Billing catalog, in US dollars."""
        try:
            from google.cloud import billing_v1  # an optional dependency
        except ImportError:
            raise MissingExtra(
                "gcp: reading the price list needs Google's billing SDK",
                "pip install 'spotctl[gcp-pricing]'",
            ) from None
        with translated(call):
            options = self._options(self._settings.billing_endpoint)
            client = self._open.enter_context(
                billing_v1.CloudCatalogClient(transport="rest", **options)
            )
            request = {"parent": service, "currency_code": "USD", "page_size": _BILLING_PAGE_ROWS}
            yield from client.list_skus(request=request, **self._call_options())

    def granted(
        self, call: ApiCall, permissions: list[str], account: str = ""
    ) -> tuple[set[str], str]:
        """Which of these permissions the identity has on the project, or on a service `account`,
        and the answer's Date header.
        """
        own = f"{self.projects('cloudresourcemanager')}/{self.project}"
        resource = f"{self.projects('iam')}/-/serviceAccounts/{account}" if account else own
        url = f"{resource}:testIamPermissions"
        ask = partial(self.rest, call, "POST", url, {"permissions": permissions})
        answer, date = self._answers.of((url, *permissions), ask)
        return set(answer.get("permissions", ())), date

    def projects(self, service: str) -> str:
        """Where a service without an SDK here has the things of projects."""
        named = {
            "cloudresourcemanager": self._settings.resource_manager_endpoint,
            "iam": self._settings.iam_endpoint,
            "serviceusage": self._settings.service_usage_endpoint,
        }[service]
        return f"{named or f'https://{service}.googleapis.com'}/v1/projects"

    def rest(
        self, call: ApiCall, method: str, url: str, body: object = None
    ) -> tuple[dict[str, Any], str]:
        """The answer of an API that has no SDK here, and its Date header. Only what changes nothing
        when it is sent again is repeated."""
        ask = partial(self._asked, method, url, body)
        with translated(call):
            if method in ("GET", "DELETE"):
                ask = self._call_options()["retry"](ask)
            return ask()

    def _asked(self, method: str, url: str, body: object) -> tuple[dict[str, Any], str]:
        session: Any = AuthorizedSession(self._credentials(url))  # type: ignore[no-untyped-call]
        timeout = self._settings.call_timeout_seconds
        answer = session.request(method, url, json=body, timeout=timeout)
        if not answer.ok:
            raise exceptions.from_http_response(answer)  # type: ignore[no-untyped-call]
        return answer.json() if answer.content else {}, answer.headers.get("date", "")

    def member(self) -> str:
        """The identity that is signed in, as policies name it; empty if its credentials do not say
        it."""
        with translated(ApiCall("Google sign-in", "a token")):
            # With all its own scopes: a user's token for fewer does not name the user.
            credentials: Any = google.auth.default()[0]
            if getattr(credentials, "service_account_email", "default") == "default":
                credentials.refresh(AuthRequest())
            if account := getattr(credentials, "service_account_email", ""):
                return f"serviceAccount:{account}"
            if token := getattr(credentials, "id_token", ""):
                claims: Any = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
                return f"user:{claims['email']}"
        return ""

    @contextmanager
    def _translated(self, call: ApiCall) -> Iterator[None]:
        """Turns an SDK error into the `CloudError` to handle."""
        try:
            with translated(call):
                yield
        except MissingCredentials:
            # Only new clients see that the user has signed in again.
            self._clients.clear()
            vars(self).pop("_default_identity", None)
            raise

    # The SDK's clients have no common type.
    def _compute(self, service: str) -> Any:  # noqa: ANN401
        if service not in self._clients:
            kind = getattr(compute_v1, f"{service}Client")
            options = self._options(self._settings.compute_endpoint)
            self._clients[service] = self._open.enter_context(kind(**options))
        return self._clients[service]

    def _options(self, endpoint: str | None) -> dict[str, Any]:
        return {
            "credentials": self._credentials(endpoint),
            "client_options": {"api_endpoint": endpoint} if endpoint else {},
        }

    def _credentials(self, endpoint: str | None) -> Credentials:
        if is_plain_http(endpoint):
            # The SDK does not annotate it.
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        if self._settings.api_key:
            return ApiKey(self._settings.api_key)  # type: ignore[no-untyped-call]
        return self._default_identity[0]

    @cached_property
    def _default_identity(self) -> tuple[Credentials, str | None]:
        return google.auth.default(scopes=_SCOPES)

    def _call_options(self) -> dict[str, Any]:
        retry = Retry(
            predicate=RetryPredicate(self._settings.connection_attempts),
            initial=self._settings.first_retry_seconds,
            maximum=_SLOWEST_RETRY_SECONDS,
            timeout=self._settings.retry_deadline_seconds,
        )
        return {"retry": retry, "timeout": self._settings.call_timeout_seconds}


class RetryPredicate:
    """Whether to repeat a call that failed. Refused connections are retried only a few times: no
    server is there.
    """

    def __init__(self, connection_attempts: int) -> None:
        self._connections_left = connection_attempts

    def __call__(self, error: BaseException) -> bool:
        """Called by the SDK after each failed attempt."""
        if no_connection(error):
            self._connections_left -= 1
            return self._connections_left > 0
        return is_throttling(error) or isinstance(
            error, (exceptions.ServerError, *_LOST_CONNECTION, *_UNDOCUMENTED_ANSWER)
        )


def storage_token() -> tuple[str, float]:
    """A token for Cloud Storage from the default credentials, and how many seconds it is valid."""
    with translated(ApiCall("Google sign-in", "a token")):
        credentials, _ = google.auth.default(scopes=[_STORAGE_SCOPE])
        # The SDK does not annotate it.
        credentials.refresh(AuthRequest())  # type: ignore[no-untyped-call]
    expiry = (
        credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry else time.time()
    )
    return str(credentials.token), expiry - time.time()


def checked_name(kind: str, name: str) -> str:
    """The name, if it can be part of a URL: for any other, the SDK raises a bare ValueError."""
    if not _NAME.fullmatch(name):
        raise RequestRejected(f"gcp: {name!r} cannot be the name of a {kind}", "check the name")
    return name


@contextmanager
def translated(call: ApiCall) -> Iterator[None]:
    """Turns an SDK error into the `CloudError` to handle."""
    try:
        yield
    except (
        exceptions.GoogleAPIError,
        GoogleAuthError,
        http.RequestException,
        *_UNDOCUMENTED_ANSWER,
    ) as error:
        raise error_of(error, call) from error


def error_of(error: BaseException, call: ApiCall) -> CloudError:
    """The `CloudError` for an SDK error; a `RetryError` is judged by the failure of its last
    attempt.
    """
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        error = error.cause
    # Google's own words, without the address that was called. Words that show a field's value first
    # say what is wrong with it at their end.
    words = _detail(error, "message") or str(getattr(error, "message", "")).partition(": ")[2]
    said = on_one_line(Exception(words), _LONGEST_WORDS).rstrip(".") if words else first_line(error)
    problem = f"gcp: {call.what}: {said}"

    # Google's reason, such as `quotaExceeded`, or else the HTTP status.
    code = _detail(error, "reason") or str(getattr(error, "code", None) or "")
    if is_throttling(error):
        return RateLimited(problem, _LATER, code)
    if isinstance(error, exceptions.Unauthorized) or (
        isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)
    ):
        return MissingCredentials(
            f"{problem}: the credentials are missing or not valid", _SIGN_IN, code
        )
    if isinstance(error, exceptions.Forbidden):
        return AccessDenied(problem, f"it needs {call.permission}", code)
    if isinstance(error, exceptions.ClientError):
        kind = UnknownResource if isinstance(error, exceptions.NotFound) else RequestRejected
        return kind(problem, "check the names of region and project", code)
    if no_connection(error):
        pool = _cause(_wrapped(error), "pool")
        address = "the server" if pool is None else f"{pool.host}:{pool.port}"
        return NoAnswer(
            f"gcp: {call.what}: cannot connect to {address}", "check the endpoint and the network"
        )

    return NoAnswer(problem, _LATER, code)


def _detail(error: BaseException, key: str) -> str:
    details = [detail for detail in getattr(error, "errors", ()) if isinstance(detail, dict)]
    return next((str(detail[key]) for detail in details if detail.get(key)), "")


def is_throttling(error: BaseException) -> bool:
    """Whether the cloud limits the rate of calls."""
    if isinstance(error, exceptions.Forbidden):
        return any(detail.get("reason") in _RATE_REASONS for detail in error.errors)
    return isinstance(error, exceptions.TooManyRequests)


def no_connection(error: BaseException) -> bool:
    """Whether no connection could be opened: refused, timed out, or a host name that does not
    resolve.
    """
    wrapped = _wrapped(error)
    return isinstance(wrapped, http.ConnectTimeout) or isinstance(
        _cause(wrapped, "reason"), NewConnectionError
    )


def _wrapped(error: BaseException) -> BaseException:
    """The error of requests, which google-auth wraps while renewing a token."""
    wraps = (
        isinstance(error, TransportError)
        and error.args
        and isinstance(error.args[0], BaseException)
    )
    return error.args[0] if wraps else error


# Urllib3 does not export the type.
def _cause(error: BaseException, attribute: str) -> Any:  # noqa: ANN401
    """An attribute of the error of urllib3 inside an error of requests."""
    return getattr(error.args[0], attribute, None) if error.args else None
