"""Ways of bidding compared over seeds of generated markets, under both payment rules; and the stated
odds of bids compared with what became of them.

For the odds, bids are held for an hour in generated markets of unseen seeds. Each bid is at one of
the six hosts with the lowest minimum bids, at a margin from 0 to 100% above; its odds are stated
from the snapshots until then. Nothing in the estimate was fitted to these markets: it has no figure
of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import expm1, nan, sqrt
from statistics import fmean, stdev

import numpy as np

from bidbrain.lab.bids.backtest import (
    BIDBRAIN,
    LOOK_HOURS,
    ON_DEMAND,
    PAST_HOURS,
    Outcome,
    bidding_of,
    play,
)
from bidbrain.lab.bids.market import Assumptions, GeneratedMarket
from bidbrain.outbid.bid import BidTerms
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


COSTS = {"its bid": True, "a clearing price": False}
"""The price of a machine, and whether that is its bid."""
_NORMAL_90 = 1.645


@dataclass(frozen=True, slots=True)
class BidPortion:
    """A job in a generated market of a seed, under some ways of bidding; and how many bids try the
    odds there.
    """

    market: str
    assumed: Assumptions
    seed: int
    work_hours: float
    terms: BidTerms
    ways: tuple[str, ...]
    tried: int = 0


@dataclass(frozen=True, slots=True)
class PlayedBid:
    """A job's course under a way of bidding and a payment rule: its dollars, and with those that
    its time is worth.
    """

    market: str
    costs: str
    way: str
    seed: int
    usd: float
    usd_with_time: float
    outcome: Outcome


def play_portion(portion: BidPortion) -> tuple[list[PlayedBid], list[TriedBid]]:
    """The job under all ways of bidding, on demand and BidBrain among them, and the bids that try
    the odds.
    """
    played = list[PlayedBid]()
    for way in dict.fromkeys((ON_DEMAND, *portion.ways, BIDBRAIN)):
        for costs, pays_bid in COSTS.items():
            terms = replace(portion.terms, pays_bid=pays_bid)
            bidding = bidding_of(way, terms)
            outcome = play(portion.assumed, portion.seed, portion.work_hours, terms, bidding)
            usd = outcome.paid if pays_bid or way == ON_DEMAND else outcome.cleared
            with_time = usd + outcome.hours * terms.time_usd_per_hour
            result = PlayedBid(portion.market, costs, way, portion.seed, usd, with_time, outcome)
            played.append(result)

    return played, tried_bids(portion.market, portion.assumed, portion.seed, portion.tried)


@dataclass(frozen=True, slots=True)
class BidSummary:
    """A way of bidding in a generated market, as means over its jobs."""

    market: str
    """The generated market, or "all"."""
    costs: str
    """The payment rule: a machine costs its bid, or a clearing price (what its host asks without
    the bid)."""
    way: str
    """The way of bidding."""
    jobs: int
    """Number of jobs, each in a market of its own seed."""
    cost_pct: float
    """Dollars, in percent of those on demand."""
    runtime_ratio: float
    """Run time relative to that on demand."""
    outbid: float
    """How often a job was outbid."""
    displaced: float
    """How often a renter on demand took its machine."""
    with_time_pct: float
    """Dollars and what the job's time is worth, in percent of those on demand."""
    saved: float
    """By how many of these points BidBrain is cheaper; below 0 it is more expensive."""
    saved_low: float
    """Lower end of its 90% interval."""
    saved_high: float
    """Upper end of its 90% interval."""
    unfinished: int
    """Number of jobs that were given up after ten times their work."""


_Jobs = dict[tuple[str, int], PlayedBid]
"""By market and seed, that is by rivals."""


def summarize(played: Sequence[PlayedBid]) -> Iterator[BidSummary]:
    """A summary of each way of bidding in each market, and in all of them together, under each
    payment rule.
    """
    markets = dict.fromkeys(each.market for each in played)
    overall = ["all"] if len(markets) > 1 else []
    for market in [*markets, *overall]:
        for costs in COSTS:
            by_way: dict[str, _Jobs] = {}
            for each in played:
                if each.costs == costs and market in (each.market, "all"):
                    by_way.setdefault(each.way, {})[each.market, each.seed] = each
            for jobs in by_way.values():
                yield _summary(market, jobs, by_way[ON_DEMAND], by_way[BIDBRAIN])


def _summary(market: str, own: _Jobs, dear: _Jobs, best: _Jobs) -> BidSummary:
    """The jobs of a way, next to those with the same rivals on demand, and by BidBrain."""
    jobs = [*own.values()]
    on_demand = [*dear.values()]
    outcomes = [job.outcome for job in jobs]
    hours = fmean(outcome.hours for outcome in outcomes)
    usual_hours = fmean(job.outcome.hours for job in on_demand)
    usd = fmean(job.usd for job in jobs)
    usual_usd = fmean(job.usd for job in on_demand)
    full = fmean(job.usd_with_time for job in on_demand)

    # Points of percent above BidBrain with the same rivals, and the normal interval of their mean.
    points = []
    for rivals, job in own.items():
        above = job.usd_with_time - best[rivals].usd_with_time
        points.append(100 * above / full)

    mean = fmean(points)
    spread = _NORMAL_90 * stdev(points) / sqrt(len(points)) if len(points) > 1 else nan

    usd_pct = 100 * usd / usual_usd
    outbid = (outcome.outbid for outcome in outcomes)
    displaced = (outcome.displaced for outcome in outcomes)
    mean_usd = fmean(job.usd_with_time for job in jobs)
    unfinished = (not outcome.finished for outcome in outcomes)
    return BidSummary(
        market,
        jobs[0].costs,
        jobs[0].way,
        len(jobs),
        usd_pct,
        hours / usual_hours,
        fmean(outbid),
        fmean(displaced),
        100 * mean_usd / full,
        mean,
        mean - spread,
        mean + spread,
        sum(unfinished),
    )
