"""The part of Google Cloud that market data needs: Compute Engine, machine types, advice and the
price list.

Every request is parsed into the SDK's own message before it is answered, so one that the real API
would not accept is rejected here too. Answers are the SDK's own messages too, written as JSON.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from google.cloud import billing_v1, compute_v1
from google.protobuf.json_format import MessageToDict, Parse, ParseDict, ParseError

from tests.servers.loopback import Reply, Request

PROJECT = "tide-pool-7"
_HOST = "https://www.googleapis.com/compute/v1"
_JSON_WANTED = ("$alt", ["json;enum-encoding=int"])
_HISTORIES = {"PRICE": "price_history", "PREEMPTION": "preemption_history"}


class Refused(Exception):
    """An answer of 4xx."""

    def __init__(self, status: int, message: str, reason: str = "invalid") -> None:
        super().__init__(message)
        self.reply = refusal(status, message, reason)


def refusal(
    status: int, message: str = "Please try again later.", reason: str = "backendError"
) -> Reply:
    """An error as Google's APIs write it."""
    detail = {"message": message, "domain": "global", "reason": reason}
    return Reply.of_json(
        {"error": {"code": status, "message": message, "errors": [detail]}}, status
    )


@dataclass
class Gcp:
    """One project. `zones` holds what each zone of each region rents out, `histories` the price
    history of each type.

    `page_size` is Compute Engine's; pages of the price list are ten times as long, as Google's are.
    """

    zones: dict[str, dict[str, list[compute_v1.MachineType]]] = field(default_factory=dict)
    histories: dict[tuple[str, str], compute_v1.CapacityHistoryResponse] = field(
        default_factory=dict
    )
    skus: list[billing_v1.Sku] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    page_size: int = 2
    _tokens: dict[str, tuple[str, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Reply:
        try:
            if "authorization" in request.headers:
                raise Refused(400, "a token was sent over plain HTTP")
            return self._answer(request)
        except Refused as refused:
            return refused.reply

    def _answer(self, request: Request) -> Reply:
        routes: dict[str, Callable[..., Any]] = {
            r"GET /compute/v1/projects/(?P<project>[^/]+)/regions": self._list_regions,
            r"GET /compute/v1/projects/(?P<project>[^/]+)/regions/(?P<region>[^/]+)": self._get_region,
            r"GET /compute/v1/projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)/machineTypes": self._list_machine_types,
            r"POST /compute/v1/projects/(?P<project>[^/]+)/regions/(?P<region>[^/]+)/advice/capacityHistory": (
                self._capacity_history
            ),
            r"GET /v1/(?P<parent>services/[^/]+)/skus": self._list_skus,
        }
        for pattern, handler in routes.items():
            if match := re.fullmatch(pattern, f"{request.method} {request.path}"):
                message = handler(request, match.groupdict())
                return Reply.of_json(MessageToDict(type(message).pb(message)))
        raise Refused(404, f"no such method: {request.method} {request.path}", "notFound")

    def _list_regions(self, request: Request, path: Mapping[str, str]) -> compute_v1.RegionList:
        call = understood(compute_v1.ListRegionsRequest, request, path)
        self._check_project(call.project)
        names, token = self._page(
            request, sorted(self.zones), call.max_results, 500, call.page_token
        )
        return compute_v1.RegionList(
            items=[compute_v1.Region(name=name) for name in names], next_page_token=token
        )

    def _get_region(self, request: Request, path: Mapping[str, str]) -> compute_v1.Region:
        call = understood(compute_v1.GetRegionRequest, request, path)
        self._check_region(call.project, call.region, "compute.regions.get")
        zones = [
            f"{_HOST}/projects/{call.project}/zones/{zone}" for zone in self.zones[call.region]
        ]
        return compute_v1.Region(name=call.region, status="UP", zones=zones)

    def _list_machine_types(
        self, request: Request, path: Mapping[str, str]
    ) -> compute_v1.MachineTypeList:
        call = understood(compute_v1.ListMachineTypesRequest, request, path)
        self._check_project(call.project)
        held = {zone: machines for zones in self.zones.values() for zone, machines in zones.items()}
        if call.zone not in held:
            raise Refused(
                404,
                f"The resource 'projects/{PROJECT}/zones/{call.zone}' was not found",
                "notFound",
            )
        machines, token = self._page(
            request, held[call.zone], call.max_results, 500, call.page_token
        )
        return compute_v1.MachineTypeList(items=machines, next_page_token=token)

    def _capacity_history(
        self, request: Request, path: Mapping[str, str]
    ) -> compute_v1.CapacityHistoryResponse:
        call = understood(
            compute_v1.CapacityHistoryAdviceRequest,
            request,
            path,
            body="capacity_history_request_resource",
        )
        self._check_region(call.project, call.region, "compute.advice.capacityHistory")
        wanted = call.capacity_history_request_resource
        if not wanted.types or not set(wanted.types) <= set(_HISTORIES):
            raise Refused(400, f"Invalid value for field 'types': {list(wanted.types)}")
        if wanted.instance_properties.scheduling.provisioning_model != "SPOT":
            raise Refused(
                400, "Invalid value for field 'instanceProperties.scheduling.provisioningModel'"
            )
        machine_type = wanted.instance_properties.machine_type
        if (call.region, machine_type) not in self.histories:
            raise Refused(
                400, f"Invalid value for field 'instanceProperties.machineType': '{machine_type}'"
            )
        held = self.histories[call.region, machine_type]
        answer = compute_v1.CapacityHistoryResponse(
            machine_type=held.machine_type, location=held.location
        )
        for kind in wanted.types:
            setattr(answer, _HISTORIES[kind], getattr(held, _HISTORIES[kind]))
        return answer

    def _list_skus(self, request: Request, path: Mapping[str, str]) -> billing_v1.ListSkusResponse:
        call = understood(billing_v1.ListSkusRequest, request, path)
        if call.parent != "services/6F81-5844-456A":
            raise Refused(404, f"Service {call.parent} was not found", "notFound")
        if call.currency_code != "USD":
            raise Refused(400, f"prices are held in USD, not in {call.currency_code!r}")
        skus, token = self._page(request, self.skus, call.page_size, 5000, call.page_token)
        return billing_v1.ListSkusResponse(skus=skus, next_page_token=token)

    def _check_project(self, project: str) -> None:
        if project != PROJECT:
            raise Refused(404, f"The resource 'projects/{project}' was not found", "notFound")

    def _check_region(self, project: str, region: str, permission: str) -> None:
        self._check_project(project)
        if region not in self.zones:
            raise Refused(
                404, f"The resource 'projects/{project}/regions/{region}' was not found", "notFound"
            )
        if region in self.denied:
            raise Refused(
                403, f"Required '{permission}' permission for 'projects/{project}'", "forbidden"
            )

    def _page(
        self, request: Request, rows: Sequence[Any], asked: int, most: int, token: str
    ) -> tuple[Sequence[Any], str]:
        """The rows of a token's page, and the token of the next page."""
        if not 0 < asked <= most:
            raise Refused(400, f"a page of {asked} rows was asked for, the most is {most}")
        with self._lock:
            path, start = self._tokens.get(token, (request.path, -1 if token else 0))
            if start < 0 or path != request.path:
                raise Refused(400, f"Invalid value for field 'pageToken': '{token}'")
            end = start + min(asked, self.page_size * most // 500)
            following = f"token-{len(self._tokens)}" if end < len(rows) else ""
            if following:
                self._tokens[following] = (request.path, end)
        return rows[start:end], following


# The SDK's messages have no common type.
def understood(message: Any, request: Request, path: Mapping[str, str], body: str = "") -> Any:  # noqa: ANN401
    """The request as the SDK's message; rejected if it has a field that the message does not
    have."""
    fields = message.pb().DESCRIPTOR.fields
    known = {one.json_name: one for one in fields}
    query = {
        name: values for name, values in request.query.items() if (name, values) != _JSON_WANTED
    }
    if unknown := set(query) - set(known):
        raise Refused(400, f"unknown parameters: {sorted(unknown)}")
    if repeated := [
        name for name, values in query.items() if len(values) > 1 and not known[name].is_repeated
    ]:
        raise Refused(400, f"given twice: {repeated}")
    if bool(request.body) != bool(body):
        raise Refused(
            400, f"{request.method} {request.path} with a body of {len(request.body)} bytes"
        )
    parsed = message()
    try:
        ParseDict(
            {**path, **{name: values[0] for name, values in query.items()}}, message.pb(parsed)
        )
        if body:
            Parse(request.body, getattr(message.pb(parsed), body), ignore_unknown_fields=False)
    except ParseError as error:
        raise Refused(400, f"not understood: {error}") from error
    return parsed


def machine(
    name: str, vcpus: int, memory_gib: float, gpus: tuple[str, int] | None = None, ssds: int = 0
) -> compute_v1.MachineType:
    """A machine type as Compute Engine lists it."""
    held = compute_v1.MachineType(
        kind="compute#machineType", name=name, guest_cpus=vcpus, memory_mb=round(memory_gib * 1024)
    )
    if gpus is not None:
        kind, count = gpus
        held.accelerators = [
            compute_v1.Accelerators(guest_accelerator_type=kind, guest_accelerator_count=count)
        ]
    if ssds:
        held.bundled_local_ssds = compute_v1.BundledLocalSsds(
            default_interface="NVME", partition_count=ssds
        )
    return held


def history(
    region: str,
    machine_type: str,
    prices: Iterable[compute_v1.CapacityHistoryResponsePriceRecord] = (),
    preemptions: Iterable[compute_v1.CapacityHistoryResponsePreemptionRecord] = (),
    zone: str | None = None,
) -> compute_v1.CapacityHistoryResponse:
    """The capacity history of a machine type, of its region or of one zone."""
    place = f"zones/{zone}" if zone else f"regions/{region}"
    return compute_v1.CapacityHistoryResponse(
        machine_type=machine_type,
        location=f"{_HOST}/projects/{PROJECT}/{place}",
        price_history=list(prices),
        preemption_history=list(preemptions),
    )


def interval(start: str, end: str | None) -> compute_v1.Interval:
    return (
        compute_v1.Interval(start_time=start, end_time=end)
        if end
        else compute_v1.Interval(start_time=start)
    )


def priced(
    start: str, end: str | None, nanos: int, currency: str = "USD"
) -> compute_v1.CapacityHistoryResponsePriceRecord:
    """A list price (in nano-dollars per hour) with its interval; without an end it still
    applies."""
    money = compute_v1.Money(currency_code=currency, units=nanos // 10**9, nanos=nanos % 10**9)
    return compute_v1.CapacityHistoryResponsePriceRecord(
        interval=interval(start, end), list_price=money
    )


def preempted(
    start: str, end: str | None, rate: float
) -> compute_v1.CapacityHistoryResponsePreemptionRecord:
    """The share of machines preempted in an interval."""
    return compute_v1.CapacityHistoryResponsePreemptionRecord(
        interval=interval(start, end), preemption_rate=rate
    )


def sku(
    description: str,
    nanos: int,
    regions: Sequence[str],
    unit: str = "h",
    usage: str = "OnDemand",
    effective: datetime = datetime(2026, 9, 1, 6, tzinfo=UTC),
) -> billing_v1.Sku:
    """An entry of the price list with one rate, in nano-dollars per unit."""
    rate = billing_v1.PricingExpression.TierRate(start_usage_amount=0)
    rate.unit_price = cast(
        Any, {"currency_code": "USD", "units": nanos // 10**9, "nanos": nanos % 10**9}
    )
    expression = billing_v1.PricingExpression(usage_unit=unit, tiered_rates=[rate])
    info = billing_v1.PricingInfo(pricing_expression=expression, currency_conversion_rate=1.0)
    info.effective_time = cast(Any, effective)
    return billing_v1.Sku(
        name=f"services/6F81-5844-456A/skus/{len(description):04d}",
        sku_id=f"{len(description):04d}",
        description=description,
        category=billing_v1.Category(
            service_display_name="Compute Engine", resource_family="Compute", usage_type=usage
        ),
        service_regions=list(regions),
        pricing_info=[info],
    )
