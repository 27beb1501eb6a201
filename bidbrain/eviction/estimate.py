"""`Estimate`: the eviction probability from price crossing and capacity hazard together.

A machine survives if neither its bid is crossed nor the cloud reclaims it, so survival is the product of both. On the
scale of -log(survival) the product is a sum: there the distances to the ends of both intervals add as independent
errors do.
"""

from dataclasses import dataclass, replace
from math import exp, expm1, hypot, inf, log1p

import numpy as np
from scipy.special import betaincinv

from bidbrain.eviction.conditional import CrossingPanel, fit
from bidbrain.eviction.crossing import Bid, Crossing, CrossingHistory
from bidbrain.eviction.hazard import Hazard
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, SECOND

MEMORY = 28 * DAY
"""Length of history that the conditional estimate uses, since markets change."""

_SEED = 2016
_MEDIAN_GRID = 129
NO_HAZARD = "no capacity-eviction data: only price-driven evictions are modeled, so the real rate may be higher"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The probability of an eviction within the window, with a 95% interval.

    `median_seconds_to_eviction` is over evicted machines; None if there are none. `observations` is the number of
    independent windows that the weaker part of the estimate rests on.
    """

    probability: float
    low: float
    high: float
    median_seconds_to_eviction: float | None
    observations: float
    basis: str


def price_outlook(markets: list[tuple[PriceSeries, Bid]], window: int, at: int) -> Estimate:
    """The probability that the first market's bid is crossed within (at, at + window], from all markets up to `at`.

    The other markets show what precedes crossings, and what to expect where the first has too little history.
    """
    series, bid = markets[0]
    known = series.window(series.first, at)
    historical = bid.crossing(CrossingHistory(known, window))
    price = known.price_at(at)
    if int(bid.limits(np.array([price]))[0]) < price:
        why = f"the price is above {bid} now, so no machine could be started"
        return _share_only(historical, why)
    # The last part of every history; markets too short to have a start are left out.
    begin = at - max(MEMORY, 4 * window)
    recent = [
        (series.window(max(series.first, begin), min(series.last, at)), bid)
        for series, bid in markets
        if min(series.last, at) - max(series.first, begin) > window
    ]
    panel = CrossingPanel(recent, window)
    model = fit(panel, at, np.random.default_rng(_SEED))
    if not historical.share and not panel.crossings(at):
        why = (
            f"in this history and, lately, in {len(panel.paths) - 1} other markets the price never rose above this bid"
        )
        return _share_only(historical, why)
    rows = panel.rows(np.array([0]), np.array([at]))
    probability = historical.share if model.method == "own share" else float(model.predict(rows)[0])
    windows = panel.windows(0, at) * panel.starts_per_window / model.inflation * model.share_alike(probability)
    basis = f"{_METHODS[model.method].format(markets=len(panel.paths))} ({model.reason})"
    return share_estimate(probability, windows, historical, basis)


def share_estimate(probability: float, windows: float, historical: Crossing, basis: str) -> Estimate:
    """The estimate with the interval of a share over that many independent windows (Jeffreys)."""
    hits, misses = probability * windows, (1 - probability) * windows
    low = float(betaincinv(hits + 0.5, misses + 0.5, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 0.5, misses + 0.5, 0.975)) if misses else 1.0
    seconds = None if historical.median_time is None else historical.median_time / SECOND
    return Estimate(probability, min(low, probability), max(high, probability), seconds, windows, basis)


def together(price: Estimate, hazard: Hazard | None, window: int, age_hours: float = 0.0) -> Estimate:
    """Price crossing and hazard combined: the probability that either evicts a machine of this age within the
    window."""
    if hazard is None:
        return replace(price, basis=f"{price.basis}; {NO_HAZARD}")
    hours = window / HOUR
    crossing = [-log1p(-share) if share < 1 else inf for share in (price.probability, price.low, price.high)]
    taken = hazard.cumulative(age_hours, hours)
    middle, low, high = (a + b for a, b in zip(crossing, taken, strict=True))
    if middle < inf:
        low = middle - hypot(crossing[0] - crossing[1], taken[0] - taken[1])
        high = middle + hypot(crossing[2] - crossing[0], taken[2] - taken[0])
    return Estimate(
        probability=-expm1(-middle),
        low=-expm1(-max(low, 0.0)),
        high=-expm1(-high),
        median_seconds_to_eviction=_median_seconds(price, hazard, age_hours, hours),
        observations=min(price.observations, hazard.effective_hours / hours),
        basis=f"{price.basis}; {hazard.basis}",
    )


_METHODS = {
    "present": "price crossing given the present, fitted to {markets} markets",
    "own share": "the share of crossings in this market's own history, because no model predicted better",
    "pooled share": "the share of crossings in {markets} markets together, because no model predicted better",
}


def _share_only(historical: Crossing, why: str) -> Estimate:
    basis = f"the share of this market's own history: {why}"
    return share_estimate(historical.share, historical.windows, historical, basis)


def _median_seconds(price: Estimate, hazard: Hazard, age: float, hours: float) -> float | None:
    """When half of the evictions within the window have happened: crossings as known, the hazard as it accumulates.

    Only the median of the crossings is known; on either side of it they are assumed to be uniform.
    """
    at = np.linspace(0, hours, _MEDIAN_GRID)
    middle = (price.median_seconds_to_eviction or hours * 1800) / 3600
    crossed = price.probability * np.interp(at, [0, middle, hours], [0, 0.5, 1])
    alive = (1 - crossed) * np.array([exp(-hazard.cumulative(age, float(end))[0]) for end in at])
    evicted = 1 - alive
    if evicted[-1] <= 0:
        return None
    return float(np.interp(evicted[-1] / 2, evicted, at)) * 3600
