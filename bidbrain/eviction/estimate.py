"""`Estimate`: the eviction probability from price crossing and capacity hazard together.

A machine survives if neither its bid is crossed nor the cloud reclaims it, so survival is the
product of both. On the scale of -log(survival) the product is a sum: there the distances to the
ends of both intervals add as independent errors do.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1, hypot, inf, log1p

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.conditional import CrossingModel, CrossingPanel, between, fit
from bidbrain.eviction.crossing import Bid, BidAbove, Crossing, CrossingHistory
from bidbrain.eviction.hazard import Hazard
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, SECOND

MEMORY = 28 * DAY
"""Length of history that the conditional estimate uses, since markets change."""

_SEED = 2016
_MEDIAN_GRID = 129
NO_HAZARD = (
    "no capacity-eviction data: only price-driven evictions are modeled, so the real rate may be "
    "higher"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The probability of an eviction within the window, with a 95% interval.

    `median_seconds_to_eviction` is over evicted machines; None if there are none. `observations` is
    the number of independent windows that the weaker part of the estimate rests on. The interval is
    computed when it is asked for: plans state many estimates without it.
    """

    probability: float
    interval: Callable[[], Sequence[float]] = field(compare=False, repr=False)
    median_seconds_to_eviction: float | None
    observations: float
    basis: str

    @property
    def low(self) -> float:
        return self.interval()[0]

    @property
    def high(self) -> float:
        return self.interval()[1]


_MAX_SIBLINGS = 60


def closest(market: Market, markets: Iterable[Market]) -> list[Market]:
    """The market and the others of its cloud and system that say most of it: of the same type
    first, then of the same region."""
    others = [each for each in markets if (each.cloud, each.os) == (market.cloud, market.os)]
    others.sort(
        key=lambda each: (
            each.instance_type != market.instance_type,
            each.region != market.region,
            str(each),
        )
    )

    return sorted(others[: _MAX_SIBLINGS + 1], key=str)


class PriceOutlook:
    """How likely the price rises above a bid within a window that begins at a moment, in any of
    some markets: the one estimate that plans and `spotctl lab beta show` state, and by which bids
    are chosen at that moment. `series` is the history of a market by its number.

    The other markets show what precedes crossings, and what to expect where a market has too little
    history. All of them are in one panel, so that markets that are close to each other share a
    model. That model is of all bids, so that a higher bid is never crossed more often.
    """

    def __init__(
        self,
        markets: Sequence[Market],
        series: Callable[[int], PriceSeries],
        at: int,
        window: int = HOUR,
    ) -> None:
        self.at = at
        self._markets = markets
        self._series = series
        self._window = window
        self._panels: dict[tuple[Market, ...], CrossingPanel | None] = {}
        self._closest: dict[tuple[str, ...], tuple[Market, ...]] = {}
        self._histories: dict[Market, CrossingHistory] = {}
        self._odds: dict[Market, Floats] = {}
        self._stated: dict[tuple[Market, int], Estimate] = {}
        self.models: dict[CrossingPanel, CrossingModel] = {}

    def of(self, history: PriceSeries, distance: int) -> Estimate:
        """The estimate for a bid by its distance from the price, in nano-dollars; `history` is what
        is known of its market, for where its series is too short."""
        asked = (history.market, distance)
        if asked in self._stated:
            return self._stated[asked]

        panel = self._panel(history.market)
        markets = [] if panel is None else [path.series.market for path in panel.paths]
        number = None
        if history.market in markets:
            number = markets.index(history.market)
        if panel is None or number is None or panel.windows(number, self.at) < 1:
            why = "it is too short to compare it with others"
            return share_only(CrossingHistory(history, self._window).at_delta(distance), why)

        series = panel.paths[number].series
        if series.market not in self._histories:
            self._histories[series.market] = CrossingHistory(series, self._window)

        historical = self._histories[series.market].at_delta(distance)
        if not historical.share and not panel.crossings(self.at, distance):
            others = len(markets) - 1
            why = (
                f"in this history and, lately, in {others} other markets the price never rose "
                "above this bid"
            )
            return share_only(historical, why)

        if panel not in self.models:
            rng = np.random.default_rng(_SEED)
            self.models[panel] = fit(panel, self.at, rng)

        model = self.models[panel]
        if series.market not in self._odds:
            last = min(self.at, series.last)
            self._odds[series.market] = model.odds(panel, np.array([number]), np.array([last]))

        probability = historical.share
        if model.method != "own share":
            odds = self._odds[series.market]
            probability = float(between(panel.distances, odds, np.array([distance]))[0])

        rung = int(np.searchsorted(panel.middles, distance, side="left"))
        known = panel.windows(number, self.at) * panel.starts_per_window
        windows = known / model.inflation * model.share_alike(probability, rung)
        basis = f"{_METHODS[model.method].format(markets=len(markets))} ({model.reason})"
        self._stated[asked] = share_estimate(probability, windows, historical, basis)

        return self._stated[asked]

    def _panel(self, market: Market) -> CrossingPanel | None:
        """The last part of the histories of the closest markets, with bids at many distances; None
        if all of them are too short to have a start, and are left out."""
        kind = (market.cloud, market.os, market.region, market.instance_type)
        if kind not in self._closest:
            self._closest[kind] = tuple(closest(market, self._markets))

        markets = self._closest[kind]
        if markets in self._panels:
            return self._panels[markets]

        begin = self.at - max(MEMORY, 4 * self._window)
        recent = list[tuple[PriceSeries, Bid]]()
        near = set(markets)
        numbered = enumerate(self._markets)
        for series in (self._series(number) for number, each in numbered if each in near):
            first = max(series.first, begin)
            last = min(series.last, self.at)
            if last - first > self._window:
                recent.append((series.window(first, last), BidAbove(0)))

        panel = CrossingPanel(recent, self._window, self.at) if recent else None
        self._panels[markets] = panel
        return panel


def share_estimate(
    probability: float, windows: float, historical: Crossing, basis: str
) -> Estimate:
    """The estimate with the interval of a share over that many independent windows (Jeffreys)."""

    def interval() -> tuple[float, float]:
        # Its import takes a good part of a plan's processor time.
        from scipy.special import betaincinv

        hits = probability * windows
        misses = (1 - probability) * windows
        low = float(betaincinv(hits + 0.5, misses + 0.5, 0.025)) if hits else 0.0
        high = float(betaincinv(hits + 0.5, misses + 0.5, 0.975)) if misses else 1.0
        return min(low, probability), max(high, probability)

    seconds = None
    if historical.median_time is not None:
        seconds = historical.median_time / SECOND
    return Estimate(probability, interval, seconds, windows, basis)


def together(
    price: Estimate, hazard: Hazard | None, window: int, age_hours: float = 0.0
) -> Estimate:
    """Price crossing and hazard combined: the probability that either evicts a machine of this age
    within the window."""
    if hazard is None:
        return replace(price, basis=f"{price.basis}; {NO_HAZARD}")

    hours = window / HOUR
    taken = hazard.cumulative(age_hours, hours)
    crossed = _minus_log_survival(price.probability)

    def interval() -> tuple[float, float]:
        ends = [_minus_log_survival(share) for share in price.interval()]
        if crossed + taken[0] == inf:
            low, high = ends[0] + taken[1], ends[1] + taken[2]
        else:
            low = crossed + taken[0] - hypot(crossed - ends[0], taken[0] - taken[1])
            high = crossed + taken[0] + hypot(ends[1] - crossed, taken[2] - taken[0])
        return -expm1(-max(low, 0.0)), -expm1(-high)

    median = _median_seconds(price, hazard, age_hours, hours)
    observations = min(price.observations, hazard.effective_hours / hours)
    return Estimate(
        probability=-expm1(-crossed - taken[0]),
        interval=interval,
        median_seconds_to_eviction=median,
        observations=observations,
        basis=f"{price.basis}; {hazard.basis}",
    )


def _minus_log_survival(probability: float) -> float:
    return -log1p(-probability) if probability < 1 else inf


_METHODS = {
    "present": "price crossing given the present, fitted to {markets} markets",
    "own share": "the share of crossings in this market's own history, because no model predicted better",
    "pooled share": "the share of crossings in {markets} markets together, because no model predicted better",
}


def share_only(historical: Crossing, why: str) -> Estimate:
    """The share of a market's own history, and why nothing else is known."""
    basis = f"the share of this market's own history: {why}"
    return share_estimate(historical.share, historical.windows, historical, basis)


def _median_seconds(price: Estimate, hazard: Hazard, age: float, hours: float) -> float | None:
    """When half of the evictions within the window have happened: crossings as known, the hazard as
    it accumulates.

    Only the median of the crossings is known; on either side of it they are assumed to be uniform.
    """
    at = np.linspace(0, hours, _MEDIAN_GRID)
    middle = (price.median_seconds_to_eviction or hours * 1800) / 3600
    crossed = price.probability * np.interp(at, [0, middle, hours], [0, 0.5, 1])
    staying = []
    for end in at:
        cumulative = hazard.cumulative(age, float(end))[0]
        staying.append(exp(-cumulative))
    alive = (1 - crossed) * np.array(staying)
    evicted = 1 - alive
    if evicted[-1] <= 0:
        return None
    middle_hour = np.interp(evicted[-1] / 2, evicted, at)
    return float(middle_hour) * 3600
