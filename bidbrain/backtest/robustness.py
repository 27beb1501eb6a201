"""How robust a comparison of strategies is: in other windows of the history, and with other overheads.

A variant is the scenario with one change. In each variant all strategies get the same jobs at the same prices, so they
are compared job by job; jobs of the same days share their market and are resampled together.
"""

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
class ConfidenceInterval:
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
    cost: ConfidenceInterval
    runtime: ConfidenceInterval


def variants(scenario: Scenario, cuts: int, varied: Sequence[str]) -> list[Variant]:
    """The original scenario, other windows of its history, and the named overheads doubled and halved."""
    unknown = [name for name in varied if name not in OVERHEADS]
    if unknown:
        raise BadScenario(f"vary: {unknown[0]!r} is unknown (known: {', '.join(OVERHEADS)})")
    listed = [Variant("as it is", scenario), *_windows(scenario, cuts)]
    for name in varied:
        listed += [Variant(f"{name} x {factor:g}", _varied(scenario, name, factor)) for factor in (0.5, 2.0)]
    return listed


def _windows(scenario: Scenario, cuts: int) -> list[Variant]:
    """Consecutive tests, each trained on everything before it: the history in cuts + 1 parts, the first only for
    training."""
    begin, end = scenario.train.start, scenario.test.end
    edges = [begin + (end - begin) * part // (cuts + 1) for part in range(cuts + 2)]
    windows = []
    for cut, after in pairwise(edges[1:]):
        name = f"test {format_time(cut)[:10]} to {format_time(after)[:10]}"
        try:
            windows.append(Variant(name, replace(scenario, train=Span(begin, cut), test=Span(cut, after))))
        except BadScenario as error:
            raise BadScenario(f"cuts: with {cuts}, {name}: {error}; use fewer cuts or shorter jobs") from None
    return windows


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
    for result in results:
        groups.setdefault((result.scheme, result.hours), {})[result.zone, result.start] = result
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
    finished = [(mine, theirs) for mine, theirs in pairs if mine.end is not None and theirs.end is not None]
    cost = [100 * (mine.cost / mine.on_demand_cost - theirs.cost / theirs.on_demand_cost) for mine, theirs in finished]
    runtime = [(mine.runtime_hours - theirs.runtime_hours) / mine.hours for mine, theirs in finished]
    blocks = _blocks([mine.start for mine, _ in finished], first.hours)
    return PairedDifference(
        variant,
        first.scheme,
        against,
        first.hours,
        len(finished),
        len(pairs) - len(finished),
        mean_interval(np.array(cost), blocks, rng),
        mean_interval(np.array(runtime), blocks, rng),
    )


def _blocks(starts: Sequence[int], hours: float) -> np.typing.NDArray[np.int64]:
    """The block of time that a job belongs to: whole days, at least twice as long as the job."""
    days = max(1, int(np.ceil(2 * hours * HOUR / DAY)))
    return np.array(starts, dtype=np.int64) // (days * DAY)


def interval_of(values: Floats, starts: Sequence[int], hours: float, rng: np.random.Generator) -> ConfidenceInterval:
    """The mean over jobs, and its interval over resampled days."""
    return mean_interval(values, _blocks(starts, hours), rng)


def mean_interval(values: Floats, blocks: np.typing.NDArray[np.int64], rng: np.random.Generator) -> ConfidenceInterval:
    """The mean of values, and the percentile interval of the mean over resampled blocks of them."""
    if not values.size:
        return ConfidenceInterval(float("nan"), None, None)
    _, which = np.unique(blocks, return_inverse=True)
    count = int(which.max()) + 1
    if count < _FEWEST_BLOCKS:
        return ConfidenceInterval(float(values.mean()), None, None)
    return ConfidenceInterval(
        float(values.mean()), *ratio_interval(values, np.ones(which.size), which, drawn_blocks(count, rng))
    )
