"""The frontier of cost and run time: every strategy and setting, next to what perfect foresight
would pay.

A point is on the frontier if no other is clearly cheaper (`CHEAPER_BY` points of on-demand) and as
fast. The bound of a point is for the same run time: the least cost, without refunds, of finishing
as early as that job did. The bound includes the reliable machines, so it does not apply to
strategies that hold none. Where pools are finite, the strategies and the bound hold at most as many
machines of each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.backtest.bound import LONGEST_RATIO, UnitPrices, cost_by_end
from bidbrain.lab.backtest.results import ConfidenceInterval, JobResult, blocks_of, mean_interval
from bidbrain.lab.backtest.run import jobs_in
from bidbrain.lab.backtest.scenario import Scenario
from bidbrain.strategies.names import NAMES
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

CHEAPER_BY = 0.15
"""Points of the on-demand cost by which another strategy must be cheaper to count as better."""
AS_FAST_WITHIN = 0.001
"""Share of the baseline's run time within which two strategies are equally fast."""

_BID_DELTAS = ("0.0001", "0.001", "0.01", "0.1")
_POOLS = (1, 2, 3, 4)
_TIME_SHARES = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
_ENDS = 24

_CostByRunTime = tuple[Floats, Floats]
"""Run times of a job in hours, and its least cost in dollars up to each."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A strategy over all jobs of one length, in percent of on-demand and in shares of the
    baseline's run time.

    `gross_pct` is the cost without refunds and unbilled time, to compare with `bound_pct`.
    `beaten_by` names the cheapest strategy that is clearly cheaper and as fast; None on the
    frontier.
    """

    scheme: str
    hours: float
    jobs: int
    unfinished: int
    cost_pct: ConfidenceInterval
    gross_pct: float
    runtime_ratio: float
    bound_pct: float
    beaten_by: str | None = None


@dataclass(frozen=True, slots=True)
class BoundPoint:
    """The least cost without refunds, by the run time within which every job has to finish."""

    hours: float
    """Length of the jobs on the baseline's machines."""
    runtime_ratio: float
    """Run time within which every job has to finish, as a share of the baseline's."""
    cost_pct: float
    """Least cost without refunds, in percent of on-demand."""


def settings_of(scenario: Scenario) -> tuple[str, ...]:
    """Every strategy with the settings worth comparing. Prices of time are shares of the baseline's
    cost per hour.
    """
    usd = scenario.baseline.machines * scenario.baseline.offer.on_demand / NANOS_PER_DOLLAR
    fixed_bids = [f"fixed-bid:{delta}" for delta in _BID_DELTAS]
    by_pools = (f"price-capacity:{pools}" for pools in _POOLS)
    by_worth = (f"lookahead:{share * usd:.4g}" for share in _TIME_SHARES)
    variants = {
        "fixed-bid": fixed_bids,
        "price-capacity": ["price-capacity", *by_pools],
        "lookahead": ["lookahead", *by_worth],
    }
    names = (name for kind in NAMES for name in variants.get(kind, [kind]))
    return tuple(names)


def points(
    scenario: Scenario, results: Iterable[JobResult]
) -> tuple[list[FrontierPoint], list[BoundPoint]]:
    """The point of each strategy and length, and the bound over run times."""
    bounds = {
        (zone, hours): _curves(scenario, zone, hours)
        for zone in scenario.zones
        for hours in scenario.hours
    }

    groups: dict[tuple[str, float], list[JobResult]] = {}
    for result in results:
        groups.setdefault((result.scheme, result.hours), []).append(result)
    rng = np.random.default_rng(scenario.seed)
    unjudged = [_point(name, hours, rows, bounds, rng) for (name, hours), rows in groups.items()]
    judged = [replace(point, beaten_by=judge(point, unjudged)) for point in unjudged]
    bound = list[BoundPoint]()
    on_demand = scenario.baseline.machines * scenario.baseline.offer.on_demand / NANOS_PER_DOLLAR

    for hours in scenario.hours:
        curves = [curve for zone in scenario.zones for curve in bounds[zone, hours].values()]
        for i in range(_ENDS):
            mean_end = fmean(float(ends[i]) for ends, _ in curves)
            mean_cost = fmean(float(costs[i]) for _, costs in curves)
            cost_pct = 100 * mean_cost / (on_demand * hours)
            bound.append(BoundPoint(hours, mean_end / hours, cost_pct))

    return judged, bound


def judge(point: FrontierPoint, others: Iterable[FrontierPoint]) -> str | None:
    """The cheapest strategy that is clearly cheaper than a point and as fast; None if there is
    none.
    """
    better = [
        other
        for other in others
        if other.hours == point.hours
        and not other.unfinished
        and other.cost_pct.mean <= point.cost_pct.mean - CHEAPER_BY
        and other.runtime_ratio <= point.runtime_ratio + AS_FAST_WITHIN
    ]
    if better:
        return min(better, key=lambda other: other.cost_pct.mean).scheme
    return None


def _curves(scenario: Scenario, zone: str, hours: float) -> dict[int, _CostByRunTime]:
    """The bound of each job of a length, by its start."""
    startup = scenario.overheads.startup
    reliable = scenario.reliable
    per_hour = 0.0
    if reliable is not None:
        per_hour = reliable.machines * reliable.offer.on_demand
    histories = scenario.histories_in(zone)
    known = list(histories.values())
    offers = scenario.offers_in(zone)
    replay = scenario.replay_in(zone)
    prices = UnitPrices.of(known, offers, scenario.baseline.offer, replay, scenario.depth)

    curves = {}

    for job in (job for length, job in jobs_in(scenario, zone) if length == hours):
        working = job.work / job.most_nu
        earliest = startup + working
        latest = LONGEST_RATIO * hours * HOUR
        edges = np.linspace(earliest, latest, _ENDS + 1)
        # A job that ends between two edges has all the moments before the later one, and pays at
        # least to the earlier.
        work_costs = cost_by_end(job, prices, startup, edges[1:])
        reliable_costs = per_hour * edges[:-1]
        costs = work_costs + reliable_costs
        # Finishing earlier than necessary is allowed.
        hours_of_ends = edges[1:] / HOUR
        least_costs = np.minimum.accumulate(costs)
        least_usd = least_costs / HOUR / NANOS_PER_DOLLAR
        curves[job.start] = hours_of_ends, least_usd

    return curves


def _point(
    name: str,
    hours: float,
    rows: Sequence[JobResult],
    bounds: dict[tuple[str, float], dict[int, _CostByRunTime]],
    rng: np.random.Generator,
) -> FrontierPoint:
    finished = [row for row in rows if row.end is not None]
    shares = np.array([100 * row.cost / row.on_demand_cost for row in finished])
    gross = []
    for row in finished:
        before_refunds = row.cost + row.refunds
        gross.append(100 * before_refunds / row.on_demand_cost)
    least = []

    for row in finished:
        ends, costs = bounds[row.zone, hours][row.start]
        # Between two ends the later one counts, a lower bound.
        until = row.runtime_hours * (1 - 1e-9)
        end_place = int(np.searchsorted(ends, until))
        place = min(end_place, len(ends) - 1)
        least_cost = 100 * float(costs[place])
        least.append(least_cost / row.on_demand_cost)

    unfinished = len(rows) - len(finished)
    starts_of_jobs = [row.start for row in finished]
    blocks = blocks_of(starts_of_jobs, hours)
    interval = mean_interval(shares, blocks, rng)
    mean_gross = fmean(gross) if gross else float("nan")
    runtime = fmean(row.runtime_hours / hours for row in finished) if finished else float("nan")
    mean_least = fmean(least) if least else float("nan")
    return FrontierPoint(
        name, hours, len(rows), unfinished, interval, mean_gross, runtime, mean_least
    )
