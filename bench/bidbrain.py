"""Decisions: exact eviction probabilities, the cost per work of all candidates, and bills, with their limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.harness import Row, seconds, shown, table, times_faster
from bidbrain.billing import BillingRule, End, Life, billing_rule, billing_rules
from bidbrain.cost import Application, Candidates, Dependence, FootprintAllocation, with_each
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.strategies.regions import RegionsSituation, RegionsStrategy
from bidbrain.strategies.regions_knowledge import Known
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time

MARKETS, DELTAS, COUNTS, HELD = 5_000, 32, 4, 6
MOST_DECISION_SECONDS, LEAST_EVALUATIONS = 0.050, 20_000_000
ZONES, MOST_REGIONS_SECONDS = 200, 0.005
EVENTS, BILLED_EVENTS, DAYS, BILLS = 100_000, 10_000, 90, 10_000
_START = parse_time("2026-01-01")


def history(events: int, seed: int = 0) -> PriceSeries:
    """A random walk on a grid of $0.0001, with `events` price changes in 90 days."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(DAYS * DAY / SECOND / events, events).astype(np.int64) + 1
    prices = np.abs(5_000 + np.cumsum(rng.integers(-3, 4, events))) + 1
    market = Market("aws", "us-east-1", "us-east-1a", "c4.xlarge")
    return PriceSeries(market, _START + np.cumsum(gaps) * SECOND, (prices * 100_000).astype(np.int64))


def deltas() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bid deltas of the spec: evenly spaced in the logarithm over $0.0001 to $0.4."""
    return np.geomspace(100_000, 400_000_000, DELTAS).astype(np.int64)


def offers(counts: int, seed: int = 0) -> Candidates:
    """All markets at all bid deltas, in one or more counts."""
    rng = np.random.default_rng(seed)
    markets = tuple(
        Market("aws", "us-east-1", f"us-east-1{'abcde'[i % 5]}", f"t{i // 5}.large") for i in range(MARKETS)
    )
    vcpus = rng.choice([4, 8, 16, 36], (MARKETS, 1, 1))
    return Candidates(
        markets,
        machines=-(-128 // vcpus) * np.arange(1, counts + 1),
        price=rng.integers(10_000_000, 900_000_000, (MARKETS, 1, 1)),
        nu=vcpus.astype(np.float64),
        left=np.full((1, 1, 1), HOUR),
        beta=np.sort(rng.random((MARKETS, DELTAS, 1)) * 0.6, axis=1)[:, ::-1],
        eviction_after=rng.random((MARKETS, DELTAS, 1)) * HOUR,
    )


def run() -> str:
    """Measures everything and returns the section."""
    return table(
        f"Decisions over {MARKETS:,} markets x {DELTAS} bid deltas",
        f"One core. The footprint holds {HELD} allocations, two of them in one market. Histories are synthetic, with"
        f" {EVENTS:,} events for eviction probabilities and {BILLED_EVENTS:,} for bills, over {DAYS} days. A delta is"
        " evaluated at every event of a history.",
        [*_eviction_rows(), *_decision_rows(), _regions_row(), *_billing_rows()],
    )


def _eviction_rows() -> list[Row]:
    known, bids = history(EVENTS), deltas()
    arranged = CrossingHistory(known, HOUR)
    arranged.betas(bids)
    limit = f"at least {LEAST_EVALUATIONS / 1e6:.0f} million"
    built = _rate_row(
        f"beta at {DELTAS} deltas, index built first", lambda: CrossingHistory(known, HOUR).betas(bids), limit
    )
    # Once the index is built the events are not read again, so this has no rate per event.
    again = Row(f"beta at {DELTAS} deltas, index reused", shown(seconds(lambda: arranged.betas(bids), runs=101)), "-")
    what = f"beta and median time at {DELTAS} deltas"
    medians = _rate_row(f"{what}, index built first", lambda: CrossingHistory(known, HOUR).at_deltas(bids), limit)
    ours, plain = (
        seconds(action, runs=3)
        for action in (lambda: arranged.at_deltas(bids), lambda: [plain_crossing(known, bid) for bid in bids.tolist()])
    )
    peer = Row(f"{what}, against plain numpy", shown(ours), shown(plain), times_faster(ours, plain))
    return [built, again, medians, peer]


def plain_crossing(known: PriceSeries, delta: int) -> tuple[float, float | None]:
    """Eviction probability and median time by the definition, without an index: event by event from each start."""
    end = np.minimum(known.times[1:], known.last - HOUR)
    begin, held = known.times[:-1][known.times[:-1] < end], known.prices[:-1][known.times[:-1] < end]
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
        f"{rate / LEAST_EVALUATIONS:.3g}x",
    )


def _decision_rows() -> list[Row]:
    rows = []
    for counts in (1, COUNTS):
        offered = offers(counts)
        for dependence in Dependence:
            taken = seconds(partial(_decide, offered, dependence), runs=21)
            what = f"cheapest of {MARKETS * DELTAS * counts:,} candidates, evictions {dependence.value}"
            limit = f"at most {shown(MOST_DECISION_SECONDS)}" if counts == 1 else "-"
            rows.append(Row(what, shown(taken), limit, f"{MOST_DECISION_SECONDS / taken:.3g}x" if counts == 1 else ""))
    return rows


def _decide(offered: Candidates, dependence: Dependence) -> tuple[int, ...] | None:
    held = [
        FootprintAllocation(
            offered.markets[max(i, 1)], 8, 50_000_000, 16, (60 - 7 * i) * MINUTE, 0.1 + i / 20, 9 * MINUTE
        )
        for i in range(HELD)
    ]
    return with_each(held, offered, Application(), dependence).best()


def _regions_row() -> Row:
    """A decision with a new plan, as a job's first one; later ones use the plan for hours."""
    at = many_zones(ZONES)
    taken = seconds(lambda: RegionsStrategy().decide(at), runs=51)
    what = f"first decision of regions over {ZONES} zones, 40 hours of work in 60"
    return Row(what, shown(taken), f"at most {shown(MOST_REGIONS_SECONDS)}", f"{MOST_REGIONS_SECONDS / taken:.3g}x")


def many_zones(count: int, seed: int = 0) -> RegionsSituation:
    """A job that begins with each zone seen once, four zones to a region."""
    rng = np.random.default_rng(seed)
    regions = tuple(f"region-{zone // 4}" for zone in range(count))
    known = Known.nothing(regions)
    for zone, up in enumerate(rng.random(count) < 0.5):
        known = known.observed(zone, 1.0, up=bool(up))
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
        for start, span in zip(starts.tolist(), rng.integers(0, 4 * HOUR, BILLS).tolist(), strict=True)
    ]
    rows = []
    for name in billing_rules():
        taken = seconds(partial(_billed, billing_rule(name), lives, known), runs=3)
        rows.append(Row(f"{BILLS:,} lives of up to 4 hours billed, {name}", shown(taken), "-"))
    return rows


def _billed(rule: BillingRule, lives: list[Life], known: PriceSeries) -> int:
    return sum(rule.bill(life, known).amount for life in lives)
