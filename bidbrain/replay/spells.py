"""Spells of spot capacity in a replay: at each moment, what could be known from the recording up to it."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.replay.market import MarketReplay
from bidbrain.strategies.base import Offer
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, SpellOutlook, SpotSpell, outlook
from bidbrain.strategies.spot_spells import GAP, at_most
from pricing_data.market import Market
from pricing_data.series import Ints


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSpells:
    """The spells of a whole recording; the spell of a moment depends only on what came before it."""

    begin: int
    outlook: SpellOutlook

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, market: MarketReplay, offers: tuple[Offer, ...]) -> "RecordedSpells":
        """Capacity is there while a market has machines at no more than their on-demand price.

        Many jobs are replayed on the same markets, hence the cache.
        """
        tapes = [market.tapes[offer.market] for offer in offers]
        begin = min(_known_from(market, offer.market, tape.first) for offer, tape in zip(offers, tapes, strict=True))
        end = max(tape.last for tape in tapes)
        ticks = np.arange(begin, end + 1, GAP)
        up = np.zeros(ticks.size, dtype=np.bool_)
        for offer, tape in zip(offers, tapes, strict=True):
            cheap = at_most(np.array(tape.times), np.array(tape.prices), ticks, offer.on_demand)
            up |= cheap & _open(market, offer.market, ticks)
        return cls(begin, outlook(up, GAP, PUBLIC_PRIOR))

    def at(self, now: int) -> SpotSpell:
        """The spell at a moment."""
        return self.outlook.spell(min((now - self.begin) // GAP, self.outlook.state.size - 1))


def _known_from(market: MarketReplay, of: Market, first: int) -> int:
    """When a market's prices, and its capacity if that is limited, begin to be known."""
    openings = market.openings(of)
    return first if openings is None else max(first, int(openings[0][0]))


def _open(market: MarketReplay, of: Market, ticks: Ints) -> Bools:
    openings = market.openings(of)
    if openings is None:
        return np.ones(ticks.size, dtype=np.bool_)
    times, opened = openings
    at = times.searchsorted(ticks, side="right") - 1
    opened_at: Bools = opened[np.maximum(at, 0)]
    return opened_at
