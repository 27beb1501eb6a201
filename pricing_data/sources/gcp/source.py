"""`GcpSource`: what is asked of Google Cloud, in which pieces and order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from pricing_data.catalog import OnDemandPrice
from pricing_data.errors import BadInput, SourceError, SourceUnavailable
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.sources.base import FetchRequest, Task
from pricing_data.sources.gcp.history import Unsupported, interruptions, market_of, price_events
from pricing_data.sources.gcp.machines import CLOUD, Machine, machine_of
from pricing_data.sources.gcp.settings import GcpSettings
from pricing_data.sources.gcp.skus import SOURCE, Rates, quotes, rates_of, recipe
from pricing_data.sources.rejects import Rejects
from pricing_data.units import DAY, Span

if TYPE_CHECKING:
    from google.cloud.compute_v1 import CapacityHistoryResponse

    from pricing_data.sources.gcp.api import GcpApi

LATE = 7 * DAY
"""A day's figures may be published when a fetch has already passed that day, so each fetch looks back this far."""

_log = logging.getLogger(__name__)


class GcpSource:
    """Market data of Google Cloud. A region's machine types, spot history and on-demand prices are tasks of their own.

    Prices are those of a whole region, since GCP prices no zones apart, and so are the preemption rates asked for. What
    has no price history is priced from the public price list, as everything on demand is. That list needs the extra
    `gcp-pricing`; a machine that it does not price completely gets no price.
    """

    cloud = CLOUD

    def __init__(self, settings: GcpSettings | None = None) -> None:
        self._settings = settings or GcpSettings()

    def tasks(self, request: FetchRequest) -> list[Task]:
        """The tasks of each region; asks which regions there are only if none are named."""
        price_list = _PriceList(self._settings)
        pulls: dict[str, Callable[[str, FetchRequest], Iterator[FetchedRows]]] = {
            "machine types": self._machine_types,
            "spot prices and preemption rates": partial(self._spot_history, price_list),
            "on-demand prices": partial(self._on_demand_prices, price_list),
        }
        return [
            Task(CLOUD, region, what, partial(pull, region, request))
            for region in request.regions or self._regions()
            for what, pull in pulls.items()
        ]

    def _regions(self) -> list[str]:
        with _opened(self._settings) as api:
            return api.regions()

    def _machine_types(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        rejects = Rejects(f"gcp/{region}: machine types")
        with _opened(self._settings) as api:
            for machines in _wanted_machines(api, region, request, rejects):
                yield FetchedRows(types=tuple(machine.instance_type for machine in machines))
        rejects.report()

    def _spot_history(self, price_list: _PriceList, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        history = request.history(CLOUD, region)
        start = request.start_of(history)
        window = Span(max(request.since, start - LATE), request.until)
        rejects, refusals, unpriced = Rejects(f"gcp/{region}: capacity history"), list[Unsupported](), list[Machine]()
        with _opened(self._settings) as api:
            machines = _listed(api, region, request)
            for machine in machines:
                try:
                    answer = api.capacity_history(region, machine.name)
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
        yield FetchedRows(prices=PriceBatch.of(_composed_spot(unpriced, region, request.until, price_list)))
        rejects.report()
        if all_refused:
            raise SourceUnavailable(f"{refusals[0]}: check the type, no history came of all {len(machines)} asked for")
        _note(f"gcp/{region}: no capacity history of some of {len(machines)} machine types", refusals)

    def _on_demand_prices(self, price_list: _PriceList, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        rejects = Rejects(f"gcp/{region}: on-demand prices")
        rates = price_list.rates()
        with _opened(self._settings) as api:
            machines = _listed(api, region, request)
        prices = [
            OnDemandPrice(CLOUD, region, machine.name, LINUX, quote.as_of, quote.price, SOURCE)
            for machine, quote in quotes(machines, region, "on-demand", rates, rejects)
        ]
        yield FetchedRows(on_demand=tuple(prices))
        unknown = [machine.name for machine in machines if recipe(machine) is None]
        _note(f"gcp/{region}: not known what the price of a machine type is composed of", unknown)
        rejects.report()


class _PriceList:
    """The public price list, read once for all tasks of a fetch: it is long, and the same for every region."""

    def __init__(self, settings: GcpSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._rates: Future[Rates] = Future()

    def rates(self) -> Rates:
        """The rates on it. Where it could not be read, every task hears so, and none tries again."""
        with self._lock:
            if not self._rates.done():
                try:
                    with _opened(self._settings) as api:
                        self._rates.set_result(rates_of(api.skus()))
                except SourceError as error:
                    self._rates.set_exception(error)
        return self._rates.result()


def _opened(settings: GcpSettings) -> GcpApi:
    from pricing_data.sources.gcp.api import GcpApi  # imports the SDK, which takes seconds

    return GcpApi(settings)


def _wanted_machines(api: GcpApi, region: str, request: FetchRequest, rejects: Rejects) -> Iterator[list[Machine]]:
    """The machine types asked for, page by page, each of them once."""
    seen: set[str] = set()
    for page in api.machine_types(region):
        fresh = {record.name: record for record in page if record.name not in seen and request.wants_type(record.name)}
        seen.update(fresh)
        yield list(rejects.good(machine_of, fresh.values(), lambda record: record.name))


def _listed(api: GcpApi, region: str, request: FetchRequest) -> list[Machine]:
    """The same at once. What cannot be read is reported by the task that brings machine types, not by every task."""
    unreported = Rejects(f"gcp/{region}: machine types")
    return [machine for page in _wanted_machines(api, region, request, unreported) for machine in page]


def _rows(
    answer: CapacityHistoryResponse, region: str, machine: Machine, window: Span, rejects: Rejects
) -> FetchedRows:
    try:
        market = market_of(answer, region, machine.name)
    except BadInput as error:
        rejects.add(error)
        return FetchedRows()
    return FetchedRows(
        prices=PriceBatch.of(price_events(market, answer, window, rejects)),
        interruptions=interruptions(market, answer, window, rejects),
    )


def _composed_spot(machines: Sequence[Machine], region: str, now: int, price_list: _PriceList) -> Iterator[PriceEvent]:
    """Spot prices from the price list, from when it says so until now; about a past `now` it says nothing."""
    composable = [machine for machine in machines if recipe(machine) is not None]
    if not composable:
        return
    rejects = Rejects(f"gcp/{region}: spot prices composed from the price list")
    for machine, quote in quotes(composable, region, "spot", price_list.rates(), rejects):
        if quote.as_of <= now:
            market = Market(CLOUD, region, NO_ZONE, machine.name)
            yield from (PriceEvent(market, time, quote.price) for time in sorted({quote.as_of, now}))
    if rejects.count:
        _log.info("%s: %d machine types have none, first %s", rejects.asked, rejects.count, rejects.example)


def _note(what: str, which: Sequence[object]) -> None:
    """What is so every time is no failure of a fetch: it goes to the log."""
    if which:
        _log.info("%s: %d, first %s", what, len(which), which[0])
