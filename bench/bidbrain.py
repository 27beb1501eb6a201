"""Decisions: exact eviction probabilities, the best of all candidates, and bills, with their
limits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.harness import Row, seconds, shown, table, times_faster
from bidbrain.billing import BillingRule, End, Life, billing_rule, billing_rules
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.strategies.base import REQUEST_VCPUS, Holding, Offer, Rent, Situation
from bidbrain.strategies.proteus import JobCosts, Odds, Proteus
from bidbrain.strategies.regions import RegionsSituation, RegionsStrategy
from bidbrain.strategies.spells import Known
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time

MARKETS, DELTAS, HELD = 5_000, 32, 6
MAX_DECISION_SECONDS, MIN_EVALUATIONS = 0.050, 20_000_000
ZONES, MAX_REGIONS_SECONDS = 200, 0.005
EVENTS, BILLED_EVENTS, DAYS, BILLS = 100_000, 10_000, 90, 10_000
_START = parse_time("2026-01-01")


def history(events: int, seed: int = 0) -> PriceSeries:
    """A random walk on a grid of $0.0001, with `events` price changes in 90 days."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(DAYS * DAY / SECOND / events, events).astype(np.int64) + 1
    prices = np.abs(5_000 + np.cumsum(rng.integers(-3, 4, events))) + 1
    market = Market("aws", "us-east-1", "us-east-1a", "c4.xlarge")
    return PriceSeries(
        market, _START + np.cumsum(gaps) * SECOND, (prices * 100_000).astype(np.int64)
    )


def deltas() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bid deltas of the spec: evenly spaced in the logarithm over $0.0001 to $0.4."""
    return np.geomspace(100_000, 400_000_000, DELTAS).astype(np.int64)


def proteus(seed: int = 0) -> tuple[Proteus, Situation]:
    """The published strategy over all markets at all bid deltas, and a job that holds some of them,
    with room for one more request."""
    rng = np.random.default_rng(seed)
    offers = tuple(
        Offer(
            Market("aws", "us-east-1", f"us-east-1{'abcde'[i % 5]}", f"t{i // 5}.large"),
            vcpus,
            900_000_000,
        )
        for i, vcpus in enumerate(rng.choice([4.0, 8.0, 16.0, 36.0], MARKETS).tolist())
    )
    distances = tuple(deltas().tolist())
    betas = np.sort(rng.random((MARKETS, DELTAS)) * 0.6, axis=1)[:, ::-1].tolist()
    medians = rng.random((MARKETS, DELTAS)).tolist()
    odds = {
        offer.market: Odds(distances, tuple(beta), tuple(median))
        for offer, beta, median in zip(offers, betas, medians, strict=True)
    }
    prices = dict(zip(offers, rng.integers(10_000_000, 900_000_000, MARKETS).tolist(), strict=True))
    held = [
        Holding(i, Rent(offers[i], 8, prices[offers[i]] * 2), -7 * i * MINUTE, 0)
        for i in range(HELD)
    ]
    most_nu = sum(holding.nu for holding in held) + REQUEST_VCPUS
    situation = Situation(
        HOUR // 4,
        offers,
        prices.__getitem__,
        tuple(held),
        Rent(offers[0], 8, None),
        most_nu,
        work_left=1e15,
    )
    return Proteus(
        offers, odds, JobCosts(1 / 60, 1 / 120, 1 / 12, 0.6), deltas=distances
    ), situation


def run() -> str:
    """Measures everything and returns the section."""
    return table(
        f"Decisions over {MARKETS:,} markets x {DELTAS} bid deltas",
        f"One core. The footprint holds {HELD} allocations. Histories are synthetic, with"
        f" {EVENTS:,} events for eviction probabilities and {BILLED_EVENTS:,} for bills, over "
        f"{DAYS} days. A delta is evaluated at every event of a history.",
        [*_eviction_rows(), _decision_row(), _regions_row(), *_billing_rows()],
    )


def _eviction_rows() -> list[Row]:
    known, bids = history(EVENTS), deltas()
    arranged = CrossingHistory(known, HOUR)
    arranged.betas(bids)
    limit = f"at least {MIN_EVALUATIONS / 1e6:.0f} million"
    built = _rate_row(
        f"beta at {DELTAS} deltas, index built first",
        lambda: CrossingHistory(known, HOUR).betas(bids),
        limit,
    )
    # Once the index is built the events are not read again, so this has no rate per event.
    again = Row(
        f"beta at {DELTAS} deltas, index reused",
        shown(seconds(lambda: arranged.betas(bids), runs=101)),
        "-",
    )
    what = f"beta and median time at {DELTAS} deltas"
    medians = _rate_row(
        f"{what}, index built first", lambda: CrossingHistory(known, HOUR).at_deltas(bids), limit
    )
    ours, plain = (
        seconds(action, runs=3)
        for action in (
            lambda: arranged.at_deltas(bids),
            lambda: [plain_crossing(known, bid) for bid in bids.tolist()],
        )
    )
    peer = Row(f"{what}, against plain numpy", shown(ours), shown(plain), times_faster(ours, plain))
    return [built, again, medians, peer]


def plain_crossing(known: PriceSeries, delta: int) -> tuple[float, float | None]:
    """Eviction probability and median time by the definition, without an index: event by event from
    each start.
    """
    end = np.minimum(known.times[1:], known.last - HOUR)
    begin, held = (
        known.times[:-1][known.times[:-1] < end],
        known.prices[:-1][known.times[:-1] < end],
    )
    end, crossed = end[: begin.size], np.full(begin.size, known.last + HOUR)
    waiting, position = np.arange(begin.size), np.arange(1, begin.size + 1)
    while waiting.size:
        above = known.prices[position] > held[waiting] + delta
        crossed[waiting[above]] = known.times[position[above]]
        waiting, position = waiting[~above], position[~above] + 1
        reachable = known.times[np.minimum(position, len(known) - 1)] - HOUR < end[waiting]
        waiting, position = waiting[reachable], position[reachable]
    low, high = crossed - end, np.minimum(crossed - begin, HOUR)
    low, high = low[low < HOUR], high[low < HOUR]
    at = np.concatenate((low, high))
    order = np.argsort(at)
    density = np.cumsum(np.repeat((1, -1), low.size)[order])[:-1]
    mass = np.append(0, np.cumsum(density * np.diff(at[order])))
    median = float(np.interp(mass[-1] / 2, mass, at[order])) if low.size else None
    return float((high - low).sum() / (known.last - HOUR - known.first)), median


def _rate_row(what: str, action: Callable[[], object], limit: str) -> Row:
    taken = seconds(action)
    rate = EVENTS * DELTAS / taken
    return Row(
        what,
        f"{shown(taken)}, {rate / 1e6:.3g} million (event x delta)/s",
        limit,
        f"{rate / MIN_EVALUATIONS:.3g}x",
    )


def _decision_row() -> Row:
    strategy, situation = proteus()
    taken = seconds(lambda: strategy.decide(situation), runs=21)
    what = f"decision of proteus over {MARKETS * DELTAS:,} candidates"
    return Row(
        what,
        shown(taken),
        f"at most {shown(MAX_DECISION_SECONDS)}",
        f"{MAX_DECISION_SECONDS / taken:.3g}x",
    )


def _regions_row() -> Row:
    """A decision with a new plan, as a job's first one; later ones use the plan for hours."""
    at = many_zones(ZONES)
    taken = seconds(lambda: RegionsStrategy().decide(at), runs=51)
    what = f"first decision of regions over {ZONES} zones, 40 hours of work in 60"
    return Row(
        what,
        shown(taken),
        f"at most {shown(MAX_REGIONS_SECONDS)}",
        f"{MAX_REGIONS_SECONDS / taken:.3g}x",
    )


def many_zones(count: int, seed: int = 0) -> RegionsSituation:
    """A job that begins with each zone seen once, four zones to a region."""
    rng = np.random.default_rng(seed)
    regions = tuple(f"region-{zone // 4}" for zone in range(count))
    known = Known.nothing(regions)
    for zone, up in enumerate(rng.random(count) < 0.5):
        known = known.observed([zone], 1.0, [bool(up)])
    return RegionsSituation(
        now=5.0,
        regions=regions,
        spot=rng.uniform(0.5, 1.5, count),
        on_demand=np.full(count, 3.0),
        moving=np.where(known.region[:, None] == known.region, 0.0, 1.0),
        known=known,
        work=40.0,
        left=60.0,
        delay=0.2,
        step=0.1,
        home=0,
    )


def _billing_rows() -> list[Row]:
    known = history(BILLED_EVENTS)
    rng = np.random.default_rng(1)
    starts = rng.integers(known.first, known.last - 4 * HOUR, BILLS)
    lives = [
        Life(start, start + span, End.EVICTED if span % 2 else End.LEFT)
        for start, span in zip(
            starts.tolist(), rng.integers(0, 4 * HOUR, BILLS).tolist(), strict=True
        )
    ]
    rows = []
    for name in billing_rules():
        taken = seconds(partial(_billed, billing_rule(name), lives, known), runs=3)
        rows.append(Row(f"{BILLS:,} lives of up to 4 hours billed, {name}", shown(taken), "-"))
    return rows


def _billed(rule: BillingRule, lives: list[Life], known: PriceSeries) -> int:
    return sum(rule.bill(life, known).amount for life in lives)
