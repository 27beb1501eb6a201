"""How robust a comparison of strategies is: in other windows of the history, and with other overheads.

A variant is the scenario with one change. In each variant all strategies get the same jobs at the same prices, so they
are compared job by job; jobs of the same days share their market and are resampled together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bidbrain.backtest.results import JobResult
from bidbrain.backtest.scenario import BadScenario, Scenario
from bidbrain.bootstrap import drawn_blocks, ratio_interval
from bidbrain.eviction.crossing import Floats
from pricing_data.units import DAY, HOUR, Span, format_time

OVERHEADS = ("lambda", "startup", "sigma")
"""Overheads that can be varied: the pause after an eviction, start-up, and the pause at joins and returns."""

_FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with one change, and the change's name."""

    name: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference and its 95% interval; the ends are None where there are too few days to resample."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A strategy minus another over the jobs that both finished: points of cost as percent of on-demand, and run time
    as a share of the baseline's. `unpaired` counts the jobs that either left unfinished."""

    variant: str
    scheme: str
    against: str
    hours: float
    jobs: int
    unpaired: int
    cost: Interval
    runtime: Interval


def variants(scenario: Scenario, cuts: int, varied: Sequence[str]) -> list[Variant]:
    """The original scenario, other windows of its history, and the named overheads doubled and halved."""
    unknown = [name for name in varied if name not in OVERHEADS]
    if unknown:
        raise BadScenario(f"vary: {unknown[0]!r} is unknown (known: {', '.join(OVERHEADS)})")
    found = [Variant("as it is", scenario), *_windows(scenario, cuts)]
    for name in varied:
        found += [Variant(f"{name} x {factor:g}", _varied(scenario, name, factor)) for factor in (0.5, 2.0)]
    return found


def _windows(scenario: Scenario, cuts: int) -> list[Variant]:
    """Consecutive tests, each after all that it learns from: the history in cuts + 1 parts, of which the first only
    trains."""
    begin, end = scenario.train.start, scenario.test.end
    edges = [begin + (end - begin) * part // (cuts + 1) for part in range(cuts + 2)]
    found = []
    for cut, after in pairwise(edges[1:]):
        name = f"test {format_time(cut)[:10]} to {format_time(after)[:10]}"
        try:
            found.append(Variant(name, replace(scenario, train=Span(begin, cut), test=Span(cut, after))))
        except BadScenario as error:
            raise BadScenario(f"cuts: with {cuts}, {name}: {error}; use fewer cuts or shorter jobs") from None
    return found


def _varied(scenario: Scenario, name: str, factor: float) -> Scenario:
    now = scenario.overheads
    changed = {
        "lambda": replace(now, eviction=round(now.eviction * factor)),
        "startup": replace(now, startup=round(now.startup * factor)),
        "sigma": replace(now, resize=round(now.resize * factor)),
    }
    return replace(scenario, overheads=changed[name])


def differences(
    variant: str, results: Iterable[JobResult], against: str, rng: np.random.Generator
) -> list[PairedDifference]:
    """Every other strategy minus `against`, by job length."""
    groups: dict[tuple[str, float], dict[tuple[str, int], JobResult]] = {}
    for one in results:
        groups.setdefault((one.scheme, one.hours), {})[one.zone, one.start] = one
    theirs = {hours: jobs for (name, hours), jobs in groups.items() if name == against}
    return [
        _difference(variant, against, [(job, theirs[hours][key]) for key, job in jobs.items()], rng)
        for (name, hours), jobs in groups.items()
        if name != against
    ]


def _difference(
    variant: str, against: str, pairs: Sequence[tuple[JobResult, JobResult]], rng: np.random.Generator
) -> PairedDifference:
    first, _ = pairs[0]
    finished = [(one, other) for one, other in pairs if one.end is not None and other.end is not None]
    shares = [(one.cost / one.on_demand_cost, other.cost / other.on_demand_cost) for one, other in finished]
    cost = np.array([100 * (ours - theirs) for ours, theirs in shares])
    runtime = np.array([(one.runtime_hours - other.runtime_hours) / one.hours for one, other in finished])
    blocks = _blocks([one.start for one, _ in finished], first.hours)
    return PairedDifference(
        variant,
        first.scheme,
        against,
        first.hours,
        len(finished),
        len(pairs) - len(finished),
        mean_interval(cost, blocks, rng),
        mean_interval(runtime, blocks, rng),
    )


def _blocks(starts: Sequence[int], hours: float) -> np.typing.NDArray[np.int64]:
    """The block of time that a job belongs to: whole days, at least twice as long as the job."""
    days = max(1, int(np.ceil(2 * hours * HOUR / DAY)))
    return np.array(starts, dtype=np.int64) // (days * DAY)


def interval_of(values: Floats, starts: Sequence[int], hours: float, rng: np.random.Generator) -> Interval:
    """The mean over jobs, and its interval over resampled days."""
    return mean_interval(values, _blocks(starts, hours), rng)


def mean_interval(values: Floats, blocks: np.typing.NDArray[np.int64], rng: np.random.Generator) -> Interval:
    """The mean of values, and the percentile interval of the mean over resampled blocks of them."""
    if not values.size:
        return Interval(float("nan"), None, None)
    _, which = np.unique(blocks, return_inverse=True)
    count = int(which.max()) + 1
    if count < _FEWEST_BLOCKS:
        return Interval(float(values.mean()), None, None)
    return Interval(float(values.mean()), *ratio_interval(values, np.ones(which.size), which, drawn_blocks(count, rng)))
