"""Results of a backtest: one row per job, summaries per strategy and job length, and how robust a
comparison is.

A comparison is repeated in other windows of the history, and with other overheads. A variant is the
scenario with one change. In each variant all strategies get the same jobs at the same prices, so
they are compared job by job; jobs of the same days share their market and are resampled together
(block bootstrap).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import nan
from statistics import fmean

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.backtest.scenario import BadScenario, Scenario
from bidbrain.strategies.names import AUTO, DEADLINE
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR, Span, format_time

BOUND = "bound"
"""Name of the clairvoyant lower bound, which scenarios list among the strategies: see
`backtest.bound`."""

SLOWEST_RATIO = 1.0
"""The default strategy must not take longer than the on-demand baseline."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job under one strategy: amounts in dollars, and machine-hours on demand, paid on spot,
    and free on spot.

    `scheme` is the strategy's name. `cost` and `refunds` go up to the limit if the job was not
    finished by then. `note` is what a reader must know about how the strategy was set up.
    """

    scheme: str
    zone: str
    hours: float
    start: int
    end: int | None
    cost: float
    refunds: float
    on_demand_cost: float
    evictions: int
    on_demand_hours: float
    spot_hours: float
    free_hours: float
    runtime_hours: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class BacktestSummary:
    """A strategy over all jobs of one length: costs as percent of on-demand, run time as a share of
    the baseline's.
    """

    scheme: str
    """Name of the strategy."""
    hours: float
    """Length of the jobs on the baseline's machines."""
    jobs: int
    """Number of jobs."""
    cost_pct: float
    """Mean cost in percent of on-demand."""
    cost_p50: float
    """Median of that cost."""
    cost_p95: float
    """95th percentile of that cost."""
    runtime_ratio: float
    """Mean run time as a share of the baseline's."""
    evictions_per_job: float
    """Mean number of evictions."""
    free_pct: float
    """Percentage of machine-hours that were refunded or not billed."""
    unfinished: int
    """Number of these that did not finish; the other figures leave them out."""
    on_demand_hours: float
    """Mean machine-hours on demand."""
    spot_hours: float
    """Mean machine-hours on spot that were paid."""
    free_hours: float
    """Mean machine-hours that were not paid."""


def summarize(results: Iterable[JobResult]) -> list[BacktestSummary]:
    """One summary per strategy and length, in order of first appearance."""
    groups: dict[tuple[str, float], list[JobResult]] = {}
    for result in results:
        groups.setdefault((result.scheme, result.hours), []).append(result)
    summaries = []

    for (name, hours), rows in groups.items():
        finished = [row for row in rows if row.end is not None]
        pct = [100 * row.cost / row.on_demand_cost for row in finished]
        shares = np.array(pct or [np.nan])
        ratios = [row.runtime_hours / hours for row in finished]
        machine_hours = sum(
            row.on_demand_hours + row.spot_hours + row.free_hours for row in finished
        )
        on_demand = sum(row.on_demand_hours for row in finished)
        spot = sum(row.spot_hours for row in finished)
        free = sum(row.free_hours for row in finished)
        evictions = sum(row.evictions for row in finished)
        count = max(len(finished), 1)
        median = np.quantile(shares, 0.5)
        high = np.quantile(shares, 0.95)
        ratio = np.mean(ratios or [np.nan])
        free_pct = 100 * free / machine_hours if machine_hours else 0.0
        unfinished = len(rows) - len(finished)
        summary = BacktestSummary(
            scheme=name,
            hours=hours,
            jobs=len(rows),
            cost_pct=float(shares.mean()),
            cost_p50=float(median),
            cost_p95=float(high),
            runtime_ratio=float(ratio),
            evictions_per_job=evictions / count,
            free_pct=free_pct,
            unfinished=unfinished,
            on_demand_hours=on_demand / count,
            spot_hours=spot / count,
            free_hours=free / count,
        )
        summaries.append(summary)

    return summaries


def notes(results: Iterable[JobResult]) -> list[str]:
    """The notes on strategies, once each, with the number of jobs where each start has its own."""
    every_note = Counter[str]()
    for result in results:
        place = "" if result.scheme in (AUTO, DEADLINE) else f" in {result.zone}"
        every_note[f"{result.scheme}{place}: {result.note}" if result.note else ""] += 1

    chosen = tuple(f"{name}: " for name in (AUTO, DEADLINE))
    return [
        f"{note} at {count:,} starts" if note.startswith(chosen) else note
        for note, count in every_note.items()
        if note
    ]


def cheapest(summaries: Iterable[BacktestSummary]) -> str | None:
    """The strategy that qualifies as the default: least mean cost over all job lengths, finishing
    every job and, on average, in no more than the baseline's time. None if no strategy
    qualifies."""
    rows: dict[str, list[BacktestSummary]] = {}
    for summary in summaries:
        if summary.scheme != BOUND:
            rows.setdefault(summary.scheme, []).append(summary)

    fit = {
        name: fmean(row.cost_pct for row in of_strategy)
        for name, of_strategy in rows.items()
        if not any(row.unfinished for row in of_strategy)
        and fmean(row.runtime_ratio for row in of_strategy) <= SLOWEST_RATIO
    }

    return min(fit, key=fit.__getitem__, default=None)


OVERHEADS = {"lambda": "eviction", "startup": "startup", "sigma": "resize"}
"""Overheads that can be varied: the pause after an eviction, start-up, and the pause at joins and
returns."""

_FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean and its 95% interval; the ends are NaN where there is too little to tell them."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A strategy minus another over the jobs that both finished: points of cost as percent of
    on-demand, and run time as a share of the baseline's. `unpaired` counts the jobs that either
    left unfinished."""

    variant: str
    scheme: str
    against: str
    hours: float
    jobs: int
    unpaired: int
    cost: ConfidenceInterval
    runtime: ConfidenceInterval


def variants(scenario: Scenario, cuts: int, varied: Sequence[str]) -> list[tuple[str, Scenario]]:
    """The original scenario, other windows of its history, and the named overheads doubled and
    halved, each with a name for its change.
    """
    unknown = [name for name in varied if name not in OVERHEADS]
    if unknown:
        raise BadScenario(f"vary: {unknown[0]!r} is unknown (known: {', '.join(OVERHEADS)})")

    listed = [("as it is", scenario)]

    # Consecutive tests, each trained on everything before it: the history in cuts + 1 parts, the
    # first only for training.
    begin = scenario.train.start
    end = scenario.test.end
    edges = [begin + (end - begin) * part // (cuts + 1) for part in range(cuts + 2)]
    for cut, after in pairwise(edges[1:]):
        window = f"test {format_time(cut)[:10]} to {format_time(after)[:10]}"
        try:
            moved = replace(scenario, train=Span(begin, cut), test=Span(cut, after))
            listed.append((window, moved))
        except BadScenario as error:
            raise BadScenario(
                f"cuts: with {cuts}, {window}: {error}; use fewer cuts or shorter jobs"
            ) from None

    now = scenario.overheads
    for name, factor in product(varied, (0.5, 2.0)):
        part = OVERHEADS[name]
        stretched = round(getattr(now, part) * factor)
        overheads = replace(now, **{part: stretched})
        varied_scenario = replace(scenario, overheads=overheads)
        listed.append((f"{name} x {factor:g}", varied_scenario))

    return listed


def differences(
    variant: str, results: Iterable[JobResult], against: str, rng: np.random.Generator
) -> list[PairedDifference]:
    """Every other strategy minus `against`, by job length."""
    groups: dict[tuple[str, float], dict[tuple[str, int], JobResult]] = {}
    for result in results:
        groups.setdefault((result.scheme, result.hours), {})[result.zone, result.start] = result
    theirs = {hours: jobs for (name, hours), jobs in groups.items() if name == against}

    compared = []

    for (name, hours), jobs in groups.items():
        if name == against:
            continue

        pairs = [(job, theirs[hours][key]) for key, job in jobs.items()]
        finished = [
            (mine, other) for mine, other in pairs if mine.end is not None and other.end is not None
        ]
        cost = []
        for mine, other in finished:
            own_share = mine.cost / mine.on_demand_cost
            other_share = other.cost / other.on_demand_cost
            cost.append(100 * (own_share - other_share))
        runtime = []
        for mine, other in finished:
            gained = mine.runtime_hours - other.runtime_hours
            runtime.append(gained / hours)
        blocks = blocks_of([mine.start for mine, _ in finished], hours)
        left_out = len(pairs) - len(finished)
        cost_interval = mean_interval(np.array(cost), blocks, rng)
        runtime_interval = mean_interval(np.array(runtime), blocks, rng)
        difference = PairedDifference(
            variant, name, against, hours, len(finished), left_out, cost_interval, runtime_interval
        )
        compared.append(difference)

    return compared


def blocks_of(starts: Sequence[int], hours: float) -> Ints:
    """The block of time that a job belongs to: whole days, at least twice as long as the job."""
    two_spans = 2 * hours * HOUR
    whole_days = np.ceil(two_spans / DAY)
    days = max(1, int(whole_days))
    return np.array(starts, dtype=np.int64) // (days * DAY)


def mean_interval(values: Floats, blocks: Ints, rng: np.random.Generator) -> ConfidenceInterval:
    """The mean of values, and the percentile interval of the mean over resampled blocks of them."""
    if not values.size:
        return ConfidenceInterval(nan, nan, nan)

    _, which = np.unique(blocks, return_inverse=True)
    count = int(which.max()) + 1
    if count < _FEWEST_BLOCKS:
        return ConfidenceInterval(float(values.mean()), nan, nan)

    drawn = drawn_blocks(count, rng)
    interval = ratio_interval(values, np.ones(which.size), which, drawn)
    return ConfidenceInterval(float(values.mean()), *interval)


RESAMPLES = 2000
_LEVELS = (0.025, 0.975)


def drawn_blocks(blocks: int, rng: np.random.Generator) -> Ints:
    """Resamples of the numbers 0 to `blocks` - 1, one per row; use the same draws to compare on the
    same blocks.
    """
    drawn: Ints = rng.integers(0, blocks, (RESAMPLES, blocks))
    return drawn


def ratio_interval(above: Floats, below: Floats, block: Ints, drawn: Ints) -> tuple[float, float]:
    """The 95% percentile interval of sum(above) / sum(below), for observations in numbered blocks.

    Leaves out resamples in which `below` sums to 0.
    """
    top, base = (np.bincount(block, values)[drawn].sum(axis=1) for values in (above, below))
    ratios = top[base > 0] / base[base > 0]
    low, high = np.quantile(ratios, _LEVELS)
    return float(low), float(high)
