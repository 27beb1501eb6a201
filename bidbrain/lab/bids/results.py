"""Ways of bidding compared over seeds of generated markets, under both payment rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan, sqrt
from statistics import fmean, stdev

from bidbrain.lab.bids.backtest import BIDBRAIN, ON_DEMAND, BidJob, Outcome, bidding_of, play
from bidbrain.lab.bids.calibration import TriedBid, tried_bids
from bidbrain.lab.bids.market import Assumptions

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
    job: BidJob
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
            terms = replace(portion.job.terms, pays_bid=pays_bid)
            job = replace(portion.job, terms=terms)
            bidding = bidding_of(way, job.terms)
            outcome = play(portion.assumed, portion.seed, job, bidding)
            usd = outcome.paid if pays_bid or way == ON_DEMAND else outcome.cleared
            with_time = usd + outcome.hours * job.terms.time_usd_per_hour
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
