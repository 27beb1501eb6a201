"""`spotctl prices best`: the cheapest machines that fit a wish, over the clouds with known prices.

Gaps are named: clouds without current prices, and the filter that no machine passes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import exp, inf
from operator import attrgetter
from typing import Any

from bidbrain.eviction.hazard import hazard_of
from pricing_data.availability import Interruption
from pricing_data.catalog import GPU_MEMORY_GIB, Catalog, InstanceType, is_model
from pricing_data.library import STALE, CloudPrices, Library, Selection, freshness_of_stored
from pricing_data.list_prices import CsvRow, rows_of, saving_of
from pricing_data.market import LINUX, NO_ZONE, Market, is_region_of
from pricing_data.sources.public_catalog import NAME as CATALOG
from pricing_data.stats import on_demand_of
from pricing_data.store.facts import INTERRUPTIONS
from pricing_data.units import SECOND, parse_time, parse_usd, to_usd
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest

_EVICTION_MEASURES = ("monthly-bucket", "preemption-rate", "eviction-rate")
_BANDS = ("monthly-bucket", "eviction-rate")
WantedBetween = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MachineWish:
    """Requirements of a machine; ranges are closed. `gpu` is a name such as A100, which A100-80GB
    also fits.
    """

    selection: Selection
    gpu: str = ""
    gpus: WantedBetween = (0, inf)
    memory: WantedBetween = (0, inf)
    os: str = LINUX

    def fits(self, machine: InstanceType) -> bool:
        least, most = self.memory
        if not least <= machine.memory_gib <= most:
            return False
        if not self.gpu:
            return True

        fewest, highest = self.gpus
        is_wanted = is_model(machine.accelerator or "", self.gpu)
        return is_wanted and fewest <= machine.accelerators <= highest


@dataclass(frozen=True, slots=True)
class RankedOffer:
    """A machine at its price in nano-dollars per hour, as of `seen`; `estimated` if no spot price
    was published.

    `eviction` is the probability of an eviction within an hour, `band` the provider's own words,
    `score` the chance that a request is filled, from 1 to 10. `lost_hours` is what an eviction
    costs: the work since the last checkpoint and the time until another machine works. The price of
    a `shipped` offer is by the lists in this package, and one `from_catalog` by the public catalog.
    """

    market: Market
    machine: InstanceType
    price: int
    seen: int
    estimated: bool
    on_demand: int | None
    eviction: float | None
    band: str | None
    score: float | None
    lost_hours: float
    shipped: bool = False
    from_catalog: bool = False

    @property
    def usd_per_hour(self) -> float:
        return to_usd(self.price)

    @property
    def usd_per_gpu_hour(self) -> float | None:
        if self.machine.accelerators:
            return self.usd_per_hour / self.machine.accelerators
        return None

    @property
    def usd_per_vcpu_hour(self) -> float:
        return self.usd_per_hour / self.machine.vcpus

    @property
    def usd_per_useful_hour(self) -> float | None:
        """The price of an hour of progress; None where evictions are unknown, or would leave no
        progress.
        """
        if self.eviction is None:
            return None
        lost = self.eviction * self.lost_hours
        if lost >= 1:
            return None
        return self.usd_per_hour / (1 - lost)

    @property
    def source(self) -> str:
        """Where the price is from."""
        if self.market.is_synthetic:
            return "synthetic"
        if self.shipped:
            return (
                f"{'list price minus saving' if self.estimated else 'list of spot prices'}, "
                "shipped with spotctl"
            )
        if self.from_catalog:
            return CATALOG
        return "on-demand price minus published saving" if self.estimated else "spot price"

    def age_seconds(self, now: int) -> float:
        return max(0.0, (now - self.seen) / SECOND)

    def is_current(self, now: int, oldest: int) -> bool:
        """Whether the price was seen within this time; synthetic prices have no age."""
        return self.market.is_synthetic or now - self.seen <= oldest


SORTS: dict[str, Callable[[RankedOffer], float | None]] = {
    "price": attrgetter("usd_per_hour"),
    "gpu": attrgetter("usd_per_gpu_hour"),
    "vcpu": attrgetter("usd_per_vcpu_hour"),
    "useful": attrgetter("usd_per_useful_hour"),
    "eviction": attrgetter("eviction"),
    "age": lambda offer: -offer.seen,
}
"""Figures by which offers can be ranked; offers without the figure come last."""


def ranked(offers: Iterable[RankedOffer], by: str) -> list[RankedOffer]:
    """The offers, the best first."""
    if by not in SORTS:
        raise BadRequest(f"--sort {by!r} is not one of {', '.join(SORTS)}")

    figure = SORTS[by]

    def key(offer: RankedOffer) -> tuple[float, float, str]:
        value = figure(offer)
        return (inf if value is None else value, offer.usd_per_hour, str(offer.market))

    return sorted(offers, key=key)


def offers(library: Library, wish: MachineWish, lost_hours: float) -> list[RankedOffer]:
    """All offers that fit the wish: every spot market with its last price, an estimate where AWS
    publishes only the saving against the on-demand price, and one by the shipped lists for a cloud
    of which no price is stored."""
    catalog, figures = library.catalog, _InterruptionFigures(library.store.facts(INTERRUPTIONS))
    looks = {
        (key.removeprefix(f"{CATALOG} ").partition("/")[0], span.end)
        for key, span in library.store.covered.items()
        if key.startswith(f"{CATALOG} ")
    }
    fitting = list[RankedOffer]()
    for series in library.table(_spot_markets(library, wish)):
        last = (series.market, int(series.prices[-1]), series.last, False)
        is_listed = (series.market.cloud, series.last) in looks
        offer = _offer(catalog, figures, last, lost_hours)
        fitting.append(replace(offer, from_catalog=is_listed))

    priced = {_place(offer.market) for offer in fitting}
    for market, price, seen in _estimates(catalog, figures, wish):
        if _place(market) not in priced:
            estimate = (market, price, seen, True)
            fitting.append(_offer(catalog, figures, estimate, lost_hours))

    stored = {market.cloud for market in library.store.markets()}
    stored |= {offer.market.cloud for offer in fitting}
    shipped = dict[tuple[str, str, str], RankedOffer]()
    for market, price, seen, estimated, on_demand in _shipped_prices(catalog, wish):
        place = _place(market)
        if market.cloud not in stored and place not in shipped:
            offer = _offer(catalog, figures, (market, price, seen, estimated), lost_hours)
            shipped[place] = replace(offer, shipped=True, on_demand=on_demand)

    return [*fitting, *shipped.values()]


def _place(market: Market) -> tuple[str, str, str]:
    """The cloud, region and type of a market: offers of its zones are alike."""
    return market.cloud, market.region, market.instance_type


def _spot_markets(library: Library, wish: MachineWish) -> list[Market]:
    markets = library.select(wish.selection)
    return [
        market
        for market in markets
        if market.os == wish.os and _fits(library.catalog, wish, market)
    ]


def _estimates(
    catalog: Catalog, figures: "_InterruptionFigures", wish: MachineWish
) -> Iterator[tuple[Market, int, int]]:
    """On-demand price x (1 - saving), where the provider publishes the saving."""
    for saving in figures.newest.values():
        market = saving.market
        if (
            saving.measure != "saving"
            or market.os != wish.os
            or not wish.selection.matches(market, catalog)
            or not _fits(catalog, wish, market)
        ):
            continue
        on_demand = on_demand_of(market, saving.as_of, catalog)
        price = 0 if on_demand is None else round(on_demand.price * (1 - saving.low))
        if price > 0:
            yield market, price, saving.as_of


def _shipped_prices(
    catalog: Catalog, wish: MachineWish
) -> Iterator[tuple[Market, int, int, bool, int]]:
    """Spot prices by the lists that are shipped, the newest lists first: market, price, moment,
    whether it is an estimate, and the price on demand. Of machines that the dated list of GPUs
    lacks, on-demand price x (1 - saving)."""
    for market, row in _shipped_gpus(catalog, wish):
        if row["spot"]:
            price, seen = parse_usd(row["spot"]), parse_time(row["spot_asof"])
            is_estimate = row["certainty"] != "list"
            yield market, price, seen, is_estimate, parse_usd(row["on_demand"])

    for listed in catalog.prices:
        saving = saving_of(listed.cloud, listed.instance_type)
        if saving is None or listed.os != wish.os:
            continue
        market = Market(listed.cloud, listed.region, NO_ZONE, listed.instance_type, listed.os)
        if wish.selection.matches(market, catalog) and _fits(catalog, wish, market):
            share, as_of = saving
            price, seen = round(listed.price * (1 - share)), min(listed.as_of, as_of)
            yield market, price, seen, True, listed.price


def _shipped_gpus(catalog: Catalog, wish: MachineWish) -> Iterator[tuple[Market, CsvRow]]:
    """The rows of the dated list of GPUs' prices that fit."""
    if wish.os != LINUX:
        return

    for row in rows_of("gpu_prices"):
        market = Market(row["cloud"], row["region"], NO_ZONE, row["instance_type"], wish.os)
        if wish.selection.matches(market, catalog) and _fits(catalog, wish, market):
            yield market, row


def on_demand_only(library: Library, wish: MachineWish, shown: Iterable[RankedOffer]) -> list[str]:
    """For each cloud of which no offer is shown, the cheapest fitting machine of its shipped
    on-demand prices.
    """
    with_offers = {offer.market.cloud for offer in shown}
    cheapest: dict[str, tuple[float, str, str]] = {}
    for market, row in _shipped_gpus(library.catalog, wish):
        if market.cloud not in with_offers:
            listed = (float(row["on_demand"]), str(market), row["asof"])
            known = cheapest.get(market.cloud, listed)
            cheapest[market.cloud] = min(known, listed)

    remarks = list[str]()
    for cloud, (price, name, asof) in sorted(cheapest.items()):
        offer = f"{name} ${price:.2f}/h ({asof})"
        remarks.append(f"of {cloud}, only on-demand prices are shipped: {offer}")
    return remarks


def _fits(catalog: Catalog, wish: MachineWish, market: Market) -> bool:
    if not catalog.knows(market.cloud, market.instance_type):
        return False
    machine = catalog.instance_type(market.cloud, market.instance_type)
    return wish.fits(machine)


def _offer(
    catalog: Catalog,
    figures: "_InterruptionFigures",
    spot: tuple[Market, int, int, bool],
    lost_hours: float,
) -> RankedOffer:
    market, price, seen, estimated = spot
    on_demand = on_demand_of(market, seen, catalog)
    listed = None if on_demand is None else on_demand.price
    machine = catalog.instance_type(market.cloud, market.instance_type)
    return RankedOffer(
        market,
        machine,
        price,
        seen,
        estimated,
        listed,
        figures.eviction(market),
        figures.band(market),
        figures.score(market),
        lost_hours,
    )


class _InterruptionFigures:
    """Published interruption figures by machine: a figure of a region holds for its zones."""

    def __init__(self, published: Sequence[Interruption]) -> None:
        self.newest: dict[tuple[str, str, str, str, str, str], Interruption] = {}
        self._of_type: dict[tuple[str, str, str], list[Interruption]] = {}
        for figure in sorted(published, key=attrgetter("as_of")):
            market = figure.market
            cloud, region, kind = _place(market)
            key = (cloud, region, market.zone, kind, market.os, figure.measure)
            self.newest[key] = figure
            if figure.measure in _EVICTION_MEASURES:
                self._of_type.setdefault((cloud, region, kind), []).append(figure)

    def _of(self, market: Market, measure: str) -> Interruption | None:
        for zone in (market.zone, "-"):
            key = (market.cloud, market.region, zone, market.instance_type, market.os, measure)
            if key in self.newest:
                return self.newest[key]
        return None

    def eviction(self, market: Market) -> float | None:
        figures = self._of_type.get(_place(market))
        hazard = hazard_of(market, (), figures) if figures else None
        if hazard is None:
            return None
        return 1 - exp(-hazard.rate[0])

    def band(self, market: Market) -> str | None:
        figure = None
        for measure in _BANDS:
            figure = figure or self._of(market, measure)

        if figure is None:
            return None
        low, high = figure.low * 100, figure.high * 100
        if figure.high < 1:
            return f"{low:g}-{high:g}%"
        return f">{low:g}%"

    def score(self, market: Market) -> float | None:
        figure = self._of(market, "placement-score")
        if figure is None:
            return None
        return figure.low


def check_gpu(wish: MachineWish, catalog: Catalog) -> None:
    """Raises `BadRequest` for a GPU that no known machine has."""
    if not wish.gpu:
        return

    known = catalog.accelerators | GPU_MEMORY_GIB.keys()
    if any(is_model(name, wish.gpu) for name in known):
        return
    unknown = catalog.unknown_accelerator(wish.gpu.upper(), rented_clouds(), known)
    raise BadRequest(f"--gpu {wish.gpu}: {unknown}")


def cloud_prices(
    library: Library, wish: MachineWish, fitting: Sequence[RankedOffer], now: int
) -> list[CloudPrices]:
    """How current the prices of the rented clouds are that a wish allows; `fitting` are all offers
    for it.
    """
    seen: dict[str, int] = {}
    for offer in fitting:
        if not offer.shipped:
            cloud = offer.market.cloud
            seen[cloud] = max(offer.seen, seen.get(cloud, 0))

    prices, selection = list[CloudPrices](), wish.selection
    for cloud in rented_clouds():
        if selection.clouds and cloud not in selection.clouds:
            continue
        if selection.pattern and not fnmatchcase(
            cloud, selection.pattern.partition("/")[0].lower()
        ):
            continue
        if selection.regions and not any(
            is_region_of(cloud, region) for region in selection.regions
        ):
            continue

        newest: int | None = seen.get(cloud, 0)
        if now - seen.get(cloud, 0) > STALE:
            newest = _newest(library, cloud)
        prices.append(CloudPrices(cloud, newest))
    return prices


def _newest(library: Library, cloud: str) -> int | None:
    """The moment of a cloud's newest price, also of machines that do not fit."""
    moments, markets = list[int](), library.select(Selection(clouds=(cloud,)))
    for prices in freshness_of_stored(library, markets):
        if prices.newest is not None:
            moments.append(prices.newest)
    for figure in library.store.facts(INTERRUPTIONS, cloud):
        if figure.measure == "saving":
            moments.append(figure.as_of)
    return max(moments, default=None)


def last_filter(library: Library, wish: MachineWish) -> tuple[str, int] | None:
    """The filter, as an option, that no market passes, and how many passed those before it; None if
    some pass all.
    """
    figures, catalog = _InterruptionFigures(library.store.facts(INTERRUPTIONS)), library.catalog
    stored, before = {market.cloud for market in library.store.markets()}, 0
    for option, looser in _steps(wish):
        passing = set(_spot_markets(library, looser))
        for market, *_ in _shipped_prices(catalog, looser):
            if market.cloud not in stored:
                passing.add(market)
        passing |= {market for market, *_ in _estimates(catalog, figures, looser)}
        if not passing:
            return option, before
        before = len(passing)

    return None


def _steps(wish: MachineWish) -> Iterator[tuple[str, MachineWish]]:
    """The wish with one filter, with two, and so on."""
    whole, so_far = wish.selection, MachineWish(Selection(), os=wish.os)
    yield f"--os {wish.os}", so_far
    parts: list[tuple[str, dict[str, Any]]] = [(repr(whole.pattern), {"pattern": whole.pattern})]
    for option, field in (("cloud", "clouds"), ("region", "regions"), ("type", "types")):
        names = getattr(whole, field)
        words = " ".join(f"--{option} {name}" for name in names)
        parts.append((words, {field: names}))
    vcpus = _range_text(whole.vcpus or (0, inf))
    parts.append((f"--vcpus {vcpus}", {"vcpus": whole.vcpus}))

    for words, change in parts:
        if any(change.values()):
            selection = replace(so_far.selection, **change)
            so_far = replace(so_far, selection=selection)
            yield words, so_far

    if wish.gpu:
        so_far = replace(so_far, gpu=wish.gpu)
        yield f"--gpu {wish.gpu}", so_far
        so_far = replace(so_far, gpus=wish.gpus)
        yield f"--gpu {wish.gpu}:{_range_text(wish.gpus)}", so_far

    yield f"--memory {_range_text(wish.memory)}", replace(so_far, memory=wish.memory)


def _range_text(limits: tuple[float, float]) -> str:
    """A range as an option takes it."""
    low, high = limits
    if low == high:
        return f"{low:g}"
    if high >= 1 << 30:
        return f"{low:g}.."
    return f"{f'{low:g}' if low else ''}..{high:g}"
