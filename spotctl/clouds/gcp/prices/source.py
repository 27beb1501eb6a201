"""`GcpSource`: the tasks of a fetch from Google Cloud, and the four queries that they ask."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pricing_data.catalog import InstanceType, OnDemandPrice
from pricing_data.errors import (
    BadInput,
    CloudError,
    MissingCredentials,
    RequestRejected,
    UnknownResource,
)
from pricing_data.fetched_rows import NO_SPOT, FetchedRows, PriceBatch
from pricing_data.market import LINUX
from pricing_data.series import WatchRecord
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask, Rejects
from pricing_data.units import DAY, Span
from spotctl.clouds.errors import Answers, ApiCall
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.machine_types import catalog_gpus
from spotctl.clouds.gcp.prices.records import (
    CLOUD,
    SOURCE,
    GcpMachine,
    Rates,
    Unsupported,
    interruptions,
    known_machine,
    machine_of,
    market_of,
    price_history,
    quotes,
    rates_of,
    recipe,
)

if TYPE_CHECKING:
    from spotctl.clouds.gcp.session import GcpSession
    from spotctl.clouds.public_catalog import PublicCatalog

_SPOT_PRICES = "spot prices and preemption rates"
PUBLIC_PRICES = "public price list"
_COMPUTE_SERVICE = "services/6F81-5844-456A"
"""Compute Engine in the Cloud Billing catalog."""
_Listed = tuple[list[GcpMachine], Rejects, CloudError | None]

LATE = 7 * DAY
"""A day's figures may be published after a fetch has passed that day, so each fetch looks back this
far."""

_log = logging.getLogger(__name__)


class GcpSource:
    """Market data of Google Cloud. A region's machine types, spot history and on-demand prices are
    separate tasks.

    Prices and preemption rates are per region, because GCP does not price zones separately. Spot
    prices without a history, and all on-demand prices, are computed from the public price list.
    That list needs the extra `gcp-pricing`; a machine that it prices only in part gets no price.
    Without an account, an API key is enough to read it; it then prices machine types that are
    `known` already. Without either, the public `catalog` is read.
    """

    cloud = CLOUD

    def __init__(
        self,
        settings: GcpSettings | None = None,
        known: Iterable[InstanceType] = (),
        catalog: PublicCatalog | None = None,
    ) -> None:
        self._settings = settings or GcpSettings()
        self._known = tuple(known)
        self._catalog = catalog

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """The tasks of each region; lists the regions only if the request names none. With an API
        key, only one.
        """
        # What several tasks need is asked for once; if that fails, every task gets the error.
        answers = Answers()
        if self._settings.api_key:
            pull = partial(self._public_prices, answers, request)
            return [FetchTask(CLOUD, NO_REGION, PUBLIC_PRICES, pull, spot_prices=True)]

        pulls: dict[str, Callable[[str, FetchRequest], Iterator[FetchedRows]]] = {
            "machine types": partial(self._machine_types, answers),
            _SPOT_PRICES: partial(self._spot_history, answers),
            "on-demand prices": partial(self._on_demand_prices, answers),
        }

        regions: Sequence[str] = request.regions
        try:
            if not regions or self._catalog is not None:
                with _open_session(self._settings) as session:
                    # A project is known only to those who have signed in.
                    regions = regions or project_regions(session)
                    assert session.project
        except MissingCredentials as error:
            if self._catalog is None:
                raise
            counts = {machine.name: machine.accelerators for machine in self._known}
            gpus_of = partial(catalog_gpus, counts)
            listed = self._catalog.task(CLOUD, request, by_zone=False, gpus_of=gpus_of)
            return [listed, FetchTask.failed(CLOUD, "account", error, optional=True)]

        tasks = []
        for region in regions:
            for what, of_region in pulls.items():
                rows, is_spot = partial(of_region, region, request), what == _SPOT_PRICES
                tasks.append(FetchTask(CLOUD, region, what, rows, spot_prices=is_spot))
        return tasks

    def _machine_types(
        self, answers: Answers, region: str, request: FetchRequest
    ) -> Iterator[FetchedRows]:
        """The only task that reports types that cannot be read."""
        machines, rejects, failure = answers.of(
            region, partial(_machines, self._settings, region, request)
        )
        yield FetchedRows(types=tuple(machine.instance_type for machine in machines))
        if failure is not None:
            raise failure
        rejects.report()

    def _spot_history(
        self, answers: Answers, region: str, request: FetchRequest
    ) -> Iterator[FetchedRows]:
        history = request.history(CLOUD, region)
        start = request.start_of(history)
        window = Span(max(request.since, start - LATE), request.until)
        rejects, refusals, unpriced = (
            Rejects(f"gcp/{region}: capacity history"),
            list[Unsupported](),
            list[GcpMachine](),
        )

        machines, _, failure = answers.of(
            region, partial(_machines, self._settings, region, request)
        )
        if failure is not None:
            raise failure

        with _open_session(self._settings) as session:
            for machine in machines:
                try:
                    answer = capacity_history(session, region, machine.name)
                except Unsupported as refusal:
                    refusals.append(refusal)
                    unpriced.append(machine)
                    continue
                if not answer.price_history:
                    unpriced.append(machine)
                yield _rows(answer, region, machine, window, rejects)

        all_refused = bool(refusals) and len(refusals) == len(machines)
        if not rejects.count and not all_refused:
            yield FetchedRows(covered={history: Span(start, request.until)})
        yield self._composed_spot(unpriced, region, request.until, answers)
        rejects.report()
        if all_refused:
            problem = f"{refusals[0].problem}: no history of any of {len(machines)} machine types"
            raise RequestRejected(problem, refusals[0].cure, refusals[0].code)

        # It recurs in every fetch, and is therefore no failure of this one.
        if refusals:
            problem = f"no capacity history of some of {len(machines)} machine types"
            _log.info("gcp/%s: %s: %d, first %s", region, problem, len(refusals), refusals[0])

    def _public_prices(self, answers: Answers, request: FetchRequest) -> Iterator[FetchedRows]:
        own = [kind for kind in self._known if kind.cloud == CLOUD]
        machines = [known_machine(kind) for kind in own if request.wants_type(kind.name)]

        rates = answers.of("price list", self._rates)
        for region in request.regions or sorted({region for region, _, _ in rates.known}):
            # Most machine types are not sold in most regions.
            unsold = Rejects(f"gcp/{region}: on-demand prices")
            on_demand = tuple(_on_demand(machines, region, rates, unsold))
            spot = self._composed_spot(machines, region, request.until, answers)
            yield FetchedRows.joined((spot, FetchedRows(on_demand=on_demand)))

    def _on_demand_prices(
        self, answers: Answers, region: str, request: FetchRequest
    ) -> Iterator[FetchedRows]:
        rejects = Rejects(f"gcp/{region}: on-demand prices")
        rates = answers.of("price list", self._rates)
        machines, _, failure = answers.of(
            region, partial(_machines, self._settings, region, request)
        )
        if failure is not None:
            raise failure

        yield FetchedRows(on_demand=tuple(_on_demand(machines, region, rates, rejects)))
        unknown = [machine.name for machine in machines if recipe(machine) is None]
        # It recurs in every fetch, and is therefore no failure of this one.
        if unknown:
            problem = "machine types whose price components are unknown"
            _log.info("gcp/%s: %s: %d, first %s", region, problem, len(unknown), unknown[0])
        rejects.report()

    def _composed_spot(
        self, machines: Sequence[GcpMachine], region: str, now: int, answers: Answers
    ) -> FetchedRows:
        """Spot prices computed from the price list, from its date until `now`, and the prices of
        machines that are sold on demand only; none if `now` is before that date.
        """
        composable = [machine for machine in machines if recipe(machine) is not None]
        if not composable:
            return FetchedRows()

        rejects = Rejects(f"gcp/{region}: spot prices composed from the price list")
        rates = answers.of("price list", self._rates)
        known = [kind for kind in composable if kind.instance_type.traits.spot is not False]
        quoted = [*quotes(known, region, "spot", rates, rejects)]
        as_spot = {quote.market.instance_type for quote in quoted}
        others = [machine for machine in composable if machine.name not in as_spot]
        fixed = quotes(others, region, "on-demand", rates, Rejects(rejects.subject))
        quoted += [quote._replace(price=quote.price + NO_SPOT) for quote in fixed]
        events = [quote for quote in quoted if quote.time <= now]
        if rejects.count:
            _log.info(
                "%s: %d machine types have none, first %s",
                rejects.subject,
                rejects.count,
                rejects.example,
            )

        watched = {event.market: WatchRecord((Span(event.time, now),)) for event in events}
        return FetchedRows(prices=PriceBatch.of(events), watched=watched)

    def _rates(self) -> Rates:
        """The rates of the public price list, which is long and covers every region."""
        with _open_session(self._settings) as session:
            return rates_of(price_list(session))


def _machines(settings: GcpSettings, region: str, request: FetchRequest) -> _Listed:
    """The requested machine types of a region, whose zones have a list each: each type once, those
    that cannot be read, and the error after which the list ends.
    """
    rejects, machines, names = (
        Rejects(f"gcp/{region}: machine types"),
        list[GcpMachine](),
        set[str](),
    )

    try:
        with _open_session(settings) as session:
            for page in machine_types(session, region):
                fresh = {}
                for kind in page:
                    if kind.name not in names and request.wants_type(kind.name):
                        fresh[kind.name] = kind
                names.update(fresh)
                machines += rejects.good(machine_of, fresh.values(), attrgetter("name"))
    except CloudError as error:
        return machines, rejects, error

    return machines, rejects, None


def project_regions(session: GcpSession) -> list[str]:
    """Every region that the project sees."""
    call = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
    pages = session.pages(call, "Regions", {"project": session.project})
    return sorted(region.name for page in pages for region in page)


def machine_types(session: GcpSession, region: str) -> Iterator[list[Any]]:
    """The machine types of a region, page by page and zone by zone; most appear once in every
    zone."""
    call = ApiCall(f"zones of region {region}", "compute.regions.get (in roles/compute.viewer)")
    from spotctl.clouds.gcp.session import checked_name

    answer = session.answer(
        call,
        "Regions",
        "get",
        {"project": session.project, "region": checked_name("region", region)},
    )

    for zone in (url.rsplit("/", 1)[-1] for url in answer.zones):
        call = ApiCall(
            f"machine types of zone {zone}", "compute.machineTypes.list (in roles/compute.viewer)"
        )
        yield from session.pages(call, "MachineTypes", {"project": session.project, "zone": zone})


# The SDK's messages are not annotated.
def capacity_history(session: GcpSession, region: str, machine_type: str) -> Any:  # noqa: ANN401
    """Spot prices and preemption rates of a machine type in a region.

    Raises `Unsupported` where the API rejects the machine type.
    """
    call = ApiCall(
        f"capacity history of {machine_type} in {region}",
        "compute.advice.capacityHistory (in roles/compute.viewer)",
    )
    instances = {"machine_type": machine_type, "scheduling": {"provisioning_model": "SPOT"}}
    request = {
        "project": session.project,
        "region": region,
        "capacity_history_request_resource": {
            "types": ["PRICE", "PREEMPTION"],
            "instance_properties": instances,
        },
    }

    try:
        return session.answer(call, "Advice", "capacity_history", request)
    except (RequestRejected, UnknownResource) as error:
        raise Unsupported(error.problem, "check the type", error.code) from error


def price_list(session: GcpSession) -> Iterator[Any]:
    """All entries of Compute Engine's public price list, in US dollars."""
    call = ApiCall(
        "price list of Compute Engine",
        "the Cloud Billing API (cloudbilling.googleapis.com), enabled",
    )
    return session.price_list(call, _COMPUTE_SERVICE)


def _open_session(settings: GcpSettings) -> GcpSession:
    from spotctl.clouds.gcp.session import GcpSession  # imports the SDK, which takes seconds

    return GcpSession(settings)


def _rows(
    answer: Any,  # noqa: ANN401
    region: str,
    machine: GcpMachine,
    window: Span,
    rejects: Rejects,
) -> FetchedRows:  # the SDK's messages are not annotated
    try:
        market = market_of(answer, region, machine.name)
    except BadInput as error:
        rejects.add(error)
        return FetchedRows()

    events, watched = price_history(market, answer, window, rejects)
    return FetchedRows(
        prices=PriceBatch.of(events),
        interruptions=interruptions(market, answer, window, rejects),
        watched={market: watched} if events else {},
    )


def _on_demand(
    machines: Iterable[GcpMachine], region: str, rates: Rates, rejects: Rejects
) -> Iterator[OnDemandPrice]:
    for quote in quotes(machines, region, "on-demand", rates, rejects):
        yield OnDemandPrice(
            CLOUD, region, quote.market.instance_type, LINUX, quote.time, quote.price, SOURCE
        )
