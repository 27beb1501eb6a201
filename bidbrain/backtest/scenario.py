"""`Scenario`: everything that a backtest depends on."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from bidbrain.backtest.evictions import PRICE_ALONE, EvictionModel, ScenarioSpans
from bidbrain.billing import BillingRule
from bidbrain.errors import BidBrainError
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.regime import in_force
from bidbrain.replay.market import MarketReplay
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, Span, format_time


class BadScenario(BidBrainError):
    """A scenario that cannot be replayed; the message names the part and the reason."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Markets with their histories, the training span to learn from, the test span to replay, and the jobs.

    A job of h hours is what the baseline does on demand in that time. Each job runs in one zone; `starts` jobs begin at
    random moments per zone and length. With `zones_together` a job may use all zones of the region, as if they were a
    single zone. Each market has at most `depth` machines. `reliable` machines are held from start to end by strategies
    that recover through them. Work is nu (vCPUs by default) times time.
    """

    histories: tuple[PriceSeries, ...]
    offers: tuple[Offer, ...]
    train: Span
    test: Span
    baseline: Rent
    reliable: Rent | None
    hours: tuple[float, ...]
    most_nu: float
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    starts: int
    seed: int
    evictions: EvictionModel = PRICE_ALONE
    zones_together: bool = False
    depth: int | None = None

    def __post_init__(self) -> None:
        if not self.offers:
            raise BadScenario("markets: no price history has a requested type")
        if self.train.end > self.test.start:
            raise BadScenario(
                f"train ends at {format_time(self.train.end)}, after test begins at {format_time(self.test.start)}:"
                " the two spans must not overlap"
            )
        for name, span in (("train", self.train), ("test", self.test)):
            if span.end <= span.start:
                raise BadScenario(f"{name}: ends at {format_time(span.end)}, which is not after its start")
        if self.starts <= 0:
            raise BadScenario(f"starts: {self.starts} is not above 0")
        if self.baseline.machines <= 0:
            raise BadScenario(f"job: a baseline of {self.baseline.machines} machines; it needs at least 1")
        for hours in self.hours:
            if hours <= 0 or self.latest_start(hours) <= self.test.start:
                raise BadScenario(
                    f"job: {hours:g} hours need a test of three times that, to be sure to finish; it lasts from"
                    f" {format_time(self.test.start)} to {format_time(self.test.end)}"
                )
        for series in self.histories:
            self._require_covered(series)

    def latest_start(self, hours: float) -> int:
        return self.test.end - int(3 * hours * HOUR)

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that jobs run in; with `zones_together`, the regions."""
        return tuple(sorted({self._place(offer.market) for offer in self.offers}))

    def offers_in(self, zone: str) -> tuple[Offer, ...]:
        return tuple(offer for offer in self.offers if self._place(offer.market) == zone)

    def histories_in(self, zone: str) -> dict[Market, PriceSeries]:
        return {series.market: series for series in self.histories if self._place(series.market) == zone}

    def replay_in(self, zone: str) -> MarketReplay:
        """The market of a zone during the test; only the engine may ask it about the future."""
        room = {offer.market: ceil(self.most_nu / offer.nu) for offer in self.offers_in(zone)}
        replay = self.evictions.replay(self.histories_in(zone).values(), room, self._spans)
        return replay if self.depth is None else replay.at_most(self.depth)

    def hazards(self, markets: Iterable[Market]) -> dict[Market, Hazard | None]:
        """Capacity-eviction hazard of each market, from the training span; None where only the price evicts."""
        if self.evictions == PRICE_ALONE:
            return dict.fromkeys(markets)
        learned = self.evictions.learned(self._spans)
        return {market: in_force(market, learned.hazard(market), self.test.start) for market in markets}

    def learned(self, market: Market) -> PriceSeries:
        """The part of a history that strategies may learn from."""
        series = next(series for series in self.histories if series.market == market)
        return series.window(max(series.first, self.train.start), min(series.last, self.train.end))

    @property
    def _spans(self) -> ScenarioSpans:
        return ScenarioSpans(self.train, self.test)

    def _place(self, market: Market) -> str:
        return market.region if self.zones_together else market.zone

    def _require_covered(self, series: PriceSeries) -> None:
        # A history begins with the first row of a download, up to some hours after the span's nominal start.
        if series.first > self.train.end or series.first > self.test.start or series.last < self.test.end - HOUR:
            raise BadScenario(
                f"prices: {series.market} has prices from {format_time(series.first)} to {format_time(series.last)},"
                f" which does not cover the test from {format_time(self.test.start)} to {format_time(self.test.end)}"
            )
