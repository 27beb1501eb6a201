"""The present spell of spot capacity, from the prices of the markets that a job may use.

Spot capacity counts as there while any of the markets costs no more than on demand.
"""

from collections.abc import Callable, Iterable

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.strategies.base import Offer
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, SpotSpell, outlook
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import DAY, MINUTE

GAP = 10 * MINUTE
"""How often capacity is looked at: the public traces that the prior is from change about as often."""
MEMORY = 14 * DAY


def spell_of_prices(offers: Iterable[Offer], history: Callable[[Offer], PriceSeries], now: int) -> SpotSpell | None:
    """The spell at a moment, from price histories up to it; None without any history."""
    known = [(history(offer), offer.on_demand) for offer in offers]
    if not known:
        return None
    begin = max(now - MEMORY, min(series.first for series, _ in known))
    if begin >= now:
        return None
    ticks = now - GAP * np.arange((now - begin) // GAP, -1, -1)
    up = np.zeros(ticks.size, dtype=np.bool_)
    for series, on_demand in known:
        up |= at_most(series.times, series.prices, ticks, on_demand)
    return outlook(up, GAP, PUBLIC_PRIOR).spell()


def at_most(times: Ints, prices: Ints, ticks: Ints, bound: int) -> Bools:
    """Whether a price was known and at most a bound at each tick; the last price is taken to continue."""
    at = times.searchsorted(ticks, side="right") - 1
    cheap: Bools = (at >= 0) & (prices[np.maximum(at, 0)] <= bound)
    return cheap
