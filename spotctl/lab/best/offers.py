"""`spotctl prices best`: the cheapest machines that fit a wish, over the clouds with known prices.

Gaps are named: clouds without current prices, and the filter that no machine passes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import exp, inf

from bidbrain.eviction.hazard import hazard_of
from pricing_data.availability import Interruption
from pricing_data.catalog import GPU_MEMORY_GIB, Catalog, InstanceType
from pricing_data.library import STALE, CloudPrices, Library, Selection, freshness_of_stored
from pricing_data.list_prices import CsvRow, rows_of, saving_of
from pricing_data.market import LINUX, NO_ZONE, Market, is_region_of
from pricing_data.stats import on_demand_of
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
        if not self.memory[0] <= machine.memory_gib <= self.memory[1]:
            return False
        if not self.gpu:
            return True
        name, wanted = (machine.accelerator or "").upper(), self.gpu.upper()
        alike = name == wanted or (name.startswith(f"{wanted}-") and not name.endswith("-SLICE"))
        return alike and self.gpus[0] <= machine.accelerators <= self.gpus[1]


@dataclass(frozen=True, slots=True)
class RankedOffer:
    """A machine at its price in nano-dollars per hour, as of `seen`; `estimated` if no spot price
    was published.

    `eviction` is the probability of an eviction within an hour, `band` the provider's own words,
    `score` the chance that a request is filled, from 1 to 10. `lost_hours` is what an eviction
    costs: the work since the last checkpoint and the time until another machine works. The price of
    a `shipped` offer is by the lists in this package.
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

    @property
    def usd_per_hour(self) -> float:
        return to_usd(self.price)

    @property
    def usd_per_gpu_hour(self) -> float | None:
        return self.usd_per_hour / self.machine.accelerators if self.machine.accelerators else None

    @property
    def usd_per_vcpu_hour(self) -> float:
        return self.usd_per_hour / self.machine.vcpus

    @property
    def usd_per_useful_hour(self) -> float | None:
        """The price of an hour of progress; None where evictions are unknown, or would leave no
        progress.
        """
        if self.eviction is None or self.eviction * self.lost_hours >= 1:
            return None
        return self.usd_per_hour / (1 - self.eviction * self.lost_hours)

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
        return "on-demand price minus published saving" if self.estimated else "spot price"

    def age_seconds(self, now: int) -> float:
        return max(0.0, (now - self.seen) / SECOND)

    def is_current(self, now: int, oldest: int) -> bool:
        """Whether the price was seen within this time; synthetic prices have no age."""
        return self.market.is_synthetic or now - self.seen <= oldest


SORTS: dict[str, Callable[[RankedOffer], float | None]] = {
    "price": lambda offer: offer.usd_per_hour,
    "gpu": lambda offer: offer.usd_per_gpu_hour,
    "vcpu": lambda offer: offer.usd_per_vcpu_hour,
    "useful": lambda offer: offer.usd_per_useful_hour,
    "eviction": lambda offer: offer.eviction,
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
    figures = _InterruptionFigures(library.store.interruptions())
    fitting = [
        _offer(
            library.catalog,
            figures,
            (series.market, int(series.prices[-1]), series.last, False),
            lost_hours,
        )
        for series in library.table(_spot_markets(library, wish))
    ]

    priced = {
        (offer.market.cloud, offer.market.region, offer.market.instance_type) for offer in fitting
    }
    fitting += [
        _offer(library.catalog, figures, (market, price, seen, True), lost_hours)
        for market, price, seen in _estimates(library.catalog, figures, wish)
        if (market.cloud, market.region, market.instance_type) not in priced
    ]

    stored = {market.cloud for market in library.store.markets()} | {
        offer.market.cloud for offer in fitting
    }
    shipped = {}

    for market, price, seen, estimated, on_demand in _shipped_prices(library.catalog, wish):
        place = (market.cloud, market.region, market.instance_type)
        if market.cloud not in stored and place not in shipped:
            offer = _offer(library.catalog, figures, (market, price, seen, estimated), lost_hours)
            shipped[place] = replace(offer, shipped=True, on_demand=on_demand)

    return [*fitting, *shipped.values()]


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
    for saving in figures.savings():
        market = saving.market
        if (
            market.os != wish.os
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
            price, seen, is_estimate = (
                parse_usd(row["spot"]),
                parse_time(row["spot_asof"]),
                row["certainty"] != "list",
            )
            yield market, price, seen, is_estimate, parse_usd(row["on_demand"])
    for on_demand in catalog.prices:
        saving = saving_of(on_demand.cloud, on_demand.instance_type)
        if saving is None or on_demand.os != wish.os:
            continue
        market = Market(
            on_demand.cloud, on_demand.region, NO_ZONE, on_demand.instance_type, on_demand.os
        )
        if wish.selection.matches(market, catalog) and _fits(catalog, wish, market):
            price, seen = round(on_demand.price * (1 - saving[0])), min(on_demand.as_of, saving[1])
            yield market, price, seen, True, on_demand.price


def _shipped_gpus(catalog: Catalog, wish: MachineWish) -> Iterator[tuple[Market, CsvRow]]:
    """The rows of the dated list of GPUs' prices that fit."""
    for row in rows_of("gpu_prices"):
        market = Market(row["cloud"], row["region"], NO_ZONE, row["instance_type"], wish.os)
        if (
            wish.os == LINUX
            and wish.selection.matches(market, catalog)
            and _fits(catalog, wish, market)
        ):
            yield market, row


def on_demand_only(library: Library, wish: MachineWish, shown: Iterable[RankedOffer]) -> list[str]:
    """For each cloud of which no offer is shown, the cheapest fitting machine of its shipped
    on-demand prices.
    """
    with_offers = {offer.market.cloud for offer in shown}
    cheapest: dict[str, tuple[float, str, str]] = {}
    for market, row in _shipped_gpus(library.catalog, wish):
        if market.cloud not in with_offers:
            price = float(row["on_demand"])
            cheapest[market.cloud] = min(
                cheapest.get(market.cloud, (inf, "", "")), (price, str(market), row["asof"])
            )

    return [
        f"of {cloud}, only on-demand prices are shipped: {market} ${price:.2f}/h ({asof})"
        for cloud, (price, market, asof) in sorted(cheapest.items())
    ]


def _fits(catalog: Catalog, wish: MachineWish, market: Market) -> bool:
    return catalog.knows(market.cloud, market.instance_type) and wish.fits(
        catalog.instance_type(market.cloud, market.instance_type)
    )


def _offer(
    catalog: Catalog,
    figures: "_InterruptionFigures",
    spot: tuple[Market, int, int, bool],
    lost_hours: float,
) -> RankedOffer:
    market, price, seen, estimated = spot
    on_demand = on_demand_of(market, seen, catalog)
    return RankedOffer(
        market,
        catalog.instance_type(market.cloud, market.instance_type),
        price,
        seen,
        estimated,
        None if on_demand is None else on_demand.price,
        figures.eviction(market),
        figures.band(market),
        figures.score(market),
        lost_hours,
    )


class _InterruptionFigures:
    """Published interruption figures by machine: a figure of a region holds for its zones."""

    def __init__(self, published: Sequence[Interruption]) -> None:
        self._newest: dict[tuple[str, str, str, str, str, str], Interruption] = {}
        self._of_type: dict[tuple[str, str, str], list[Interruption]] = {}
        for figure in sorted(published, key=lambda figure: figure.as_of):
            market = figure.market
            self._newest[
                market.cloud,
                market.region,
                market.zone,
                market.instance_type,
                market.os,
                figure.measure,
            ] = figure
            if figure.measure in _EVICTION_MEASURES:
                self._of_type.setdefault(
                    (market.cloud, market.region, market.instance_type), []
                ).append(figure)

    def savings(self) -> Iterator[Interruption]:
        return (figure for figure in self._newest.values() if figure.measure == "saving")

    def _of(self, market: Market, measure: str) -> Interruption | None:
        for zone in (market.zone, "-"):
            key = (market.cloud, market.region, zone, market.instance_type, market.os, measure)
            if key in self._newest:
                return self._newest[key]
        return None

    def eviction(self, market: Market) -> float | None:
        figures = self._of_type.get((market.cloud, market.region, market.instance_type))
        hazard = hazard_of(market, (), figures) if figures else None
        return None if hazard is None else 1 - exp(-hazard.rate[0])

    def band(self, market: Market) -> str | None:
        figure = next(
            (
                candidate
                for candidate in (self._of(market, measure) for measure in _BANDS)
                if candidate
            ),
            None,
        )

        if figure is None:
            return None
        return (
            f"{figure.low * 100:g}-{figure.high * 100:g}%"
            if figure.high < 1
            else f">{figure.low * 100:g}%"
        )

    def score(self, market: Market) -> float | None:
        figure = self._of(market, "placement-score")
        return None if figure is None else figure.low


def check_gpu(wish: MachineWish, catalog: Catalog) -> None:
    """Raises `BadRequest` for a GPU that no known machine has."""
    known = catalog.accelerators | GPU_MEMORY_GIB.keys()
    named = wish.gpu.upper()
    if wish.gpu and not any(
        name.upper() == named or name.upper().startswith(f"{named}-") for name in known
    ):
        raise BadRequest(
            f"--gpu {wish.gpu}: {catalog.unknown_accelerator(named, rented_clouds(), known)}"
        )


def cloud_prices(
    library: Library, wish: MachineWish, fitting: Sequence[RankedOffer], now: int
) -> list[CloudPrices]:
    """How current the prices of the rented clouds are that a wish allows; `fitting` are all offers
    for it.
    """
    seen: dict[str, int] = {}
    for offer in fitting:
        if not offer.shipped:
            seen[offer.market.cloud] = max(offer.seen, seen.get(offer.market.cloud, 0))

    return [
        CloudPrices(
            cloud, seen[cloud] if now - seen.get(cloud, 0) <= STALE else _newest(library, cloud)
        )
        for cloud in _asked_clouds(wish.selection)
    ]


def _asked_clouds(selection: Selection) -> Iterator[str]:
    for cloud in rented_clouds():
        if selection.clouds and cloud not in selection.clouds:
            continue
        if selection.pattern and not fnmatchcase(
            cloud, selection.pattern.partition("/")[0].lower()
        ):
            continue
        if not selection.regions or any(
            is_region_of(cloud, region) for region in selection.regions
        ):
            yield cloud


def _newest(library: Library, cloud: str) -> int | None:
    """The moment of a cloud's newest price, also of machines that do not fit."""
    markets = library.select(Selection(clouds=(cloud,)))
    moments = [
        prices.newest
        for prices in freshness_of_stored(library, markets)
        if prices.newest is not None
    ]

    moments += [
        figure.as_of for figure in library.store.interruptions(cloud) if figure.measure == "saving"
    ]
    return max(moments, default=None)


def last_filter(library: Library, wish: MachineWish) -> tuple[str, int] | None:
    """The filter, as an option, that no market passes, and how many passed those before it; None if
    some pass all.
    """
    figures, catalog = _InterruptionFigures(library.store.interruptions()), library.catalog
    stored, before = {market.cloud for market in library.store.markets()}, 0
    for option, looser in _steps(wish):
        shipped = {
            market for market, *_ in _shipped_prices(catalog, looser) if market.cloud not in stored
        }
        estimated = {market for market, _, _ in _estimates(catalog, figures, looser)}
        left = len({*_spot_markets(library, looser), *shipped, *estimated})
        if not left:
            return option, before
        before = left

    return None


def _steps(wish: MachineWish) -> Iterator[tuple[str, MachineWish]]:
    """The wish with one filter, with two, and so on."""
    whole, so_far = wish.selection, MachineWish(Selection(), os=wish.os)
    yield f"--os {wish.os}", so_far
    parts: list[tuple[str, dict[str, object]]] = [
        (repr(whole.pattern), {"pattern": whole.pattern}),
        (" ".join(f"--cloud {name}" for name in whole.clouds), {"clouds": whole.clouds}),
        (" ".join(f"--region {name}" for name in whole.regions), {"regions": whole.regions}),
        (" ".join(f"--type {name}" for name in whole.types), {"types": whole.types}),
        (f"--vcpus {_range_text(whole.vcpus or (0, inf))}", {"vcpus": whole.vcpus}),
    ]

    for option, change in parts:
        if any(change.values()):
            so_far = replace(so_far, selection=replace(so_far.selection, **change))  # type: ignore[arg-type]
            yield option, so_far

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
    return f"{low:g}.." if high >= 1 << 30 else f"{f'{low:g}' if low else ''}..{high:g}"
