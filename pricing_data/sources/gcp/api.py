"""The only door to Google's SDK: calls go in, SDK messages come out, and every failure is a `SourceError`.

Importing this module imports the SDK, which takes seconds; `GcpSource` does so when a task runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict

import google.auth
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError
from requests import exceptions as http

from pricing_data.errors import AccessDenied, MissingCredentials, MissingExtra, SourceError, SourceUnavailable
from pricing_data.sources.gcp.history import Unsupported
from pricing_data.sources.gcp.settings import GcpSettings

if TYPE_CHECKING:
    from google.cloud import billing_v1

COMPUTE_SERVICE = "services/6F81-5844-456A"
"""Compute Engine in the Cloud Billing catalog."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]*")
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_COMPUTE_PAGE = 500  # the largest that Compute Engine gives
_BILLING_PAGE = 5000  # the largest that Cloud Billing gives
_SLOWEST_RETRY_SECONDS = 30.0
# Compute Engine reports an exhausted rate as 403 with one of these reasons, as well as by 429.
_RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
# How the SDK fails over an answer that is not what the API promises. `AttributeError`, because google-api-core takes
# it for granted that an error's body, where it is JSON at all, is an object with an object in it.
_GARBAGE = (ParseError, UnicodeDecodeError, AttributeError)
_BROKEN = (http.ConnectionError, http.ChunkedEncodingError, http.Timeout, TransportError)
_PASSING = (exceptions.TooManyRequests, exceptions.ServerError)


class Call(NamedTuple):
    """What was asked, and what allows it: for the message when it fails."""

    what: str
    allowed_by: str


class _Options(TypedDict):
    credentials: Credentials
    client_options: dict[str, str]


class _Manner(TypedDict):
    retry: Retry
    timeout: float


class GcpApi:
    """Google's APIs for the time of a `with` block; nothing is contacted before the first call."""

    def __init__(self, settings: GcpSettings) -> None:
        self._settings = settings
        self._clients = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def regions(self) -> list[str]:
        """Every region that the project sees."""
        with failures_of(Call("list of regions", "compute.regions.list (in roles/compute.viewer)")):
            request = compute_v1.ListRegionsRequest(project=self._project, max_results=_COMPUTE_PAGE)
            return sorted(region.name for region in self._regions.list(request=request, **self._manner))

    def machine_types(self, region: str) -> Iterator[list[compute_v1.MachineType]]:
        """What can be rented in a region, page by page and zone after zone: most types come once for every zone."""
        for zone in self._zones(region):
            call = Call(f"machine types of zone {zone}", "compute.machineTypes.list (in roles/compute.viewer)")
            with failures_of(call):
                request = compute_v1.ListMachineTypesRequest(
                    project=self._project, zone=zone, max_results=_COMPUTE_PAGE
                )
                for page in self._machine_types.list(request=request, **self._manner).pages:
                    yield list(page.items)

    def capacity_history(self, region: str, machine_type: str) -> compute_v1.CapacityHistoryResponse:
        """What a machine type cost on the spot market of a region, and which share of its machines was preempted.

        Raises `Unsupported` where the API refuses the machine type.
        """
        call = Call(
            f"capacity history of {machine_type} in {region}",
            "compute.advice.capacityHistory (in roles/compute.viewer)",
        )
        scheduling = compute_v1.CapacityHistoryRequestInstancePropertiesScheduling(provisioning_model="SPOT")
        properties = compute_v1.CapacityHistoryRequestInstanceProperties(
            machine_type=machine_type, scheduling=scheduling
        )
        wanted = compute_v1.CapacityHistoryRequest(types=["PRICE", "PREEMPTION"], instance_properties=properties)
        with failures_of(call):
            try:
                return self._advice.capacity_history(
                    project=self._project, region=region, capacity_history_request_resource=wanted, **self._manner
                )
            except (exceptions.BadRequest, exceptions.NotFound) as refusal:
                raise Unsupported(f"gcp: {call.what}: {first_line(refusal)}") from refusal

    def skus(self) -> Iterator[billing_v1.Sku]:
        """Everything on the public price list of Compute Engine, in US dollars."""
        try:
            from google.cloud import billing_v1  # an optional dependency
        except ImportError:
            raise MissingExtra(
                "gcp: the price list needs Google's billing SDK: pip install 'spotctl[gcp-pricing]'"
            ) from None
        call = Call("price list of Compute Engine", "the Cloud Billing API (cloudbilling.googleapis.com), enabled")
        with failures_of(call):
            options = self._options(self._settings.billing_endpoint)
            client = self._clients.enter_context(billing_v1.CloudCatalogClient(transport="rest", **options))
            request = billing_v1.ListSkusRequest(parent=COMPUTE_SERVICE, currency_code="USD", page_size=_BILLING_PAGE)
            yield from client.list_skus(request=request, **self._manner)

    def _zones(self, region: str) -> list[str]:
        with failures_of(Call(f"zones of region {region}", "compute.regions.get (in roles/compute.viewer)")):
            answer = self._regions.get(project=self._project, region=_named("region", region), **self._manner)
        return [url.rsplit("/", 1)[-1] for url in answer.zones]

    @cached_property
    def _regions(self) -> compute_v1.RegionsClient:
        return self._clients.enter_context(compute_v1.RegionsClient(**self._compute))

    @cached_property
    def _machine_types(self) -> compute_v1.MachineTypesClient:
        return self._clients.enter_context(compute_v1.MachineTypesClient(**self._compute))

    @cached_property
    def _advice(self) -> compute_v1.AdviceClient:
        return self._clients.enter_context(compute_v1.AdviceClient(**self._compute))

    @cached_property
    def _compute(self) -> _Options:
        return self._options(self._settings.compute_endpoint)

    def _options(self, endpoint: str | None) -> _Options:
        credentials = _anonymous() if _is_plain(endpoint) else self._default_identity[0]
        return {"credentials": credentials, "client_options": {"api_endpoint": endpoint} if endpoint else {}}

    @cached_property
    def _default_identity(self) -> tuple[Credentials, str | None]:
        return google.auth.default(scopes=_SCOPES)

    @cached_property
    def _project(self) -> str:
        project = self._settings.project or os.environ.get(_PROJECT)
        if not project and not _is_plain(self._settings.compute_endpoint):
            project = self._default_identity[1]
        if not project:
            raise MissingCredentials(f"gcp: no project is named: set {_PROJECT}, or the project in spotctl's settings")
        return _named("project", project)

    @cached_property
    def _manner(self) -> _Manner:
        retry = Retry(
            predicate=is_transient,
            initial=self._settings.first_retry_seconds,
            maximum=_SLOWEST_RETRY_SECONDS,
            timeout=self._settings.retry_deadline_seconds,
        )
        return {"retry": retry, "timeout": self._settings.call_timeout_seconds}


def _named(kind: str, name: str) -> str:
    """The name, if it can be a part of a URL: the SDK meets any other with a bare ValueError."""
    if not _NAME.fullmatch(name):
        raise SourceUnavailable(f"gcp: {name!r} cannot be the name of a {kind}: check it")
    return name


def _is_plain(endpoint: str | None) -> bool:
    return endpoint is not None and endpoint.lower().startswith("http://")


def _anonymous() -> Credentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the SDK left its constructor unannotated


@contextmanager
def failures_of(call: Call) -> Iterator[None]:
    """Every failure of the SDK inside becomes the `SourceError` that says what to do about it."""
    try:
        yield
    except (exceptions.GoogleAPIError, GoogleAuthError, http.RequestException, *_GARBAGE) as error:
        raise failure_of(error, call) from error


def failure_of(error: BaseException, call: Call) -> SourceError:
    """The `SourceError` for what the SDK raised; what was tried again in vain arrives as its `RetryError`."""
    said = f"gcp: {call.what}: {first_line(error)}"
    if isinstance(error, exceptions.Unauthorized) or (
        isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)
    ):
        return MissingCredentials(
            f"{said}: no credentials that are good now: set GOOGLE_APPLICATION_CREDENTIALS to a key file,"
            " or run `gcloud auth application-default login`"
        )
    if isinstance(error, exceptions.Forbidden):
        return AccessDenied(f"{said}: it needs {call.allowed_by}")
    if isinstance(error, exceptions.BadRequest | exceptions.NotFound):
        return SourceUnavailable(f"{said}: check the names of region and project")
    return SourceUnavailable(f"{said}: fetch again later, it goes on where this one ended")


def first_line(error: BaseException) -> str:
    """What an error says, fit for a message of one line: a proxy may answer with a whole page of HTML."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def is_transient(error: BaseException) -> bool:
    """Whether the same call may well succeed a little later."""
    if isinstance(error, exceptions.Forbidden):
        return any(detail.get("reason") in _RATE_REASONS for detail in error.errors)
    return isinstance(error, (*_PASSING, *_BROKEN, *_GARBAGE))
