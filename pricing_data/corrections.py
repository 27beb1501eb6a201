"""Corrections of stored prices: each is kept with its reason, and the newest one of a price is in force."""

from collections.abc import Iterable
from dataclasses import dataclass

from pricing_data.market import Market


@dataclass(frozen=True, slots=True)
class PriceCorrection:
    """From `time` on, `market` cost `price` and not what was imported; None withdraws the price change.

    `made` is the moment of the correction. Times are microseconds UTC, prices nano-dollars per hour.
    """

    market: Market
    time: int
    price: int | None
    reason: str
    made: int


CorrectedPrices = dict[str, dict[int, int | None]]
"""By market and time, the price in force, or None for a price change that was withdrawn."""


def in_force(corrections: Iterable[PriceCorrection]) -> CorrectedPrices:
    """The newest correction of each price."""
    newest: CorrectedPrices = {}
    for correction in sorted(corrections, key=lambda each: each.made):
        newest.setdefault(str(correction.market), {})[correction.time] = correction.price
    return newest
