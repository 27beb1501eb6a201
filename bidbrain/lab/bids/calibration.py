"""Stated odds of bids compared with what became of them: bids held for an hour in generated markets
of unseen seeds.

Each bid is at one of the six hosts with the lowest minimum bids, at a margin from 0 to 100% above;
its odds are stated from the snapshots until then. Nothing in the estimate was fitted to these
markets: it has no figure of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import expm1
from statistics import fmean

import numpy as np

from bidbrain.lab.bids.backtest import LOOK_HOURS, PAST_HOURS
from bidbrain.lab.bids.market import Assumptions, GeneratedMarket
from bidbrain.outbid.odds import OutbidOdds
from bidbrain.outbid.record import HostRecord, level_of

_TRIED_MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
_AMONG = 6
_UNSEEN = 1_000_000
"""Added to seeds, so that no job was played in the same market."""
_BANDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class TriedBid:
    """A bid that was held for an hour, unless it was lost: the stated odds of being outbid and of
    being displaced in that time, and whether it was."""

    market: str
    outbid_odds: float
    displaced_odds: float
    outbid: bool
    displaced: bool


def tried_bids(name: str, assumed: Assumptions, seed: int, bids: int) -> list[TriedBid]:
    """Some bids one after the other, two hours apart, in the market of an unseen seed."""
    past_and_tried = PAST_HOURS + 2 * bids
    market = GeneratedMarket(assumed, _UNSEEN + seed, past_and_tried + 1)
    chance = np.random.default_rng([_UNSEEN, seed])
    record = HostRecord.of(())
    tried = list[TriedBid]()

    for number in range(bids):
        until = PAST_HOURS + 2 * number
        while market.hour < until - LOOK_HOURS / 2:
            record = record.joined(market.listed())
            market.advance(min(market.hour + LOOK_HOURS, until))

        if not (listed := market.listed()).host.size:
            continue

        record = record.joined(listed)
        cheapest = np.argsort(listed.least_bid, kind="stable")
        drawn = chance.integers(_AMONG)
        row = int(cheapest[: int(drawn) + 1][-1])
        host = int(listed.host[row])
        least = int(listed.least_bid[row])
        margin = float(chance.choice(_TRIED_MARGINS))
        bid = round(least * (1 + margin))
        own_bid = np.array([bid])
        level = level_of(own_bid, int(listed.usual[0]))
        rates = OutbidOdds.of(record).outbid_per_hour(level)[0]
        outbid = float(rates)
        displaced = OutbidOdds.of(record).displaced_per_hour(host)
        any_end = -expm1(-outbid - displaced)
        lost = any_end / (outbid + displaced)
        own = market.rent(host, bid, 0.0)
        market.advance(market.hour + 1)
        gone = host not in market.listed().host
        lasted_not = not own.runs and not gone
        result = TriedBid(name, outbid * lost, displaced * lost, lasted_not, not own.runs and gone)
        tried.append(result)
        market.give_up()

    return tried


@dataclass(frozen=True, slots=True)
class OddsScore:
    """Stated odds of bids in a generated market, next to what became of the bids."""

    market: str
    """The generated market, or "all"."""
    bids: int
    """Number of bids."""
    outbid_stated: float
    """Mean stated odds of being outbid within an hour."""
    outbid_seen: float
    """Share of bids that were outbid."""
    displaced_stated: float
    """Mean stated odds of being displaced by a renter on demand within an hour."""
    displaced_seen: float
    """Share of bids that were displaced."""
    brier: float
    """Brier score of being outbid: the mean squared difference of the odds and what happened."""
    skill: float
    """By which share that is lower than with the market's own share of outbid bids for every
    bid."""


@dataclass(frozen=True, slots=True)
class OddsBand:
    """The bids whose stated odds of being outbid are in a band."""

    low: float
    """Lower end of the band."""
    high: float
    """Upper end of the band."""
    bids: int
    """Number of bids in the band."""
    stated: float
    """Mean stated odds."""
    seen: float
    """Share of these bids that were outbid."""


def scores(tried: Sequence[TriedBid]) -> Iterator[OddsScore]:
    """The score of each market, and of all together."""
    names = dict.fromkeys(each.market for each in tried)
    overall = ["all"] if len(names) > 1 else []
    for name in [*names, *overall]:
        own = [each for each in tried if name in (each.market, "all")]
        stated = fmean(each.outbid_odds for each in own)
        seen = fmean(each.outbid for each in own)
        brier = fmean((each.outbid_odds - each.outbid) ** 2 for each in own)
        plain = seen * (1 - seen)
        stated_displaced = fmean(each.displaced_odds for each in own)
        seen_displaced = fmean(each.displaced for each in own)
        skill = 1 - brier / plain if plain else 0.0
        yield OddsScore(
            name, len(own), stated, seen, stated_displaced, seen_displaced, brier, skill
        )


def bands(tried: Sequence[TriedBid]) -> Iterator[OddsBand]:
    """The bids of all markets by their stated odds of being outbid."""
    for low, high in pairwise(_BANDS):
        own = [each for each in tried if low <= each.outbid_odds < high]
        if own:
            stated = fmean(each.outbid_odds for each in own)
            seen = fmean(each.outbid for each in own)
            yield OddsBand(low, high, len(own), stated, seen)
