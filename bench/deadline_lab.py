"""The figures behind the deadline strategy: `python -m bench.deadline_lab WHAT GLOB GLOB...`.

Each glob is one set of availability traces; after `any:` one of traces of several machines, read as one machine that is
up while any of them is. `prior` pools them and prints the endings per hour that the strategy uses as its prior. `split`
takes the prior from all sets but one and reports on that one, with
the object that decides for live runs. `variants` does the same for alternatives that were tried
and dropped, `margins` for several margins. Brackets hold 90% intervals over resampled traces; a difference is paired by
trace. `readings` replays the published strategies under each reading of the rules, set by set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bidbrain.backtest.deadline import (
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    cost_ratios,
    lay_out,
    optimal,
    replay,
)
from bidbrain.backtest.deadline_decided import decided
from bidbrain.backtest.deadline_strategies import Deadline, Greedy, UniformProgress
from bidbrain.strategies.deadline import HOPE_MARGIN
from bidbrain.strategies.deadline_job import DeadlineTerms, SafetyNet, net_when_idle, within_two_delays
from bidbrain.strategies.deadline_spells import AGES, CLASSES, Prior, SpellOutlook, fit_prior
from pricing_data.units import HOUR
from spotctl.lab.backtest.deadline import read, recorded

TERMS = DeadlineTerms(48 * HOUR, HOUR // 5, 3.0)
SLACKS = (1.1, 1.25, 1.5, 2.0)
STARTS = 30
MARGINS = (0.0, 0.0625, HOPE_MARGIN, 0.1875, 0.25)
RESAMPLED = 2000
_ANY = "any:"

Sets = dict[str, tuple[AvailabilityHistory, ...]]


def main(words: Sequence[str]) -> None:
    """Prints what the first argument names."""
    tasks: dict[str, Callable[[Sets], None]] = {
        "prior": prior,
        "split": split,
        "variants": variants,
        "margins": margins,
        "readings": readings,
    }
    if len(words) < 2 or words[0] not in tasks:
        sys.exit(f"usage: python -m bench.deadline_lab {{{','.join(tasks)}}} GLOB GLOB...")
    tasks[words[0]]({pattern: _histories(pattern) for pattern in words[1:]})


def _histories(pattern: str) -> tuple[AvailabilityHistory, ...]:
    if not pattern.startswith(_ANY):
        return read(pattern)
    traces = recorded(pattern.removeprefix(_ANY))
    return tuple(AvailabilityHistory.of(replace(trace, up=np.minimum(trace.up, 1))) for trace in traces)


def prior(sets: Sets) -> None:
    """The pooled prior of all sets."""
    found = pooled(sets)
    for side, rates in (("down", found.down), ("up", found.up)):
        print(f"{side:5}", ", ".join(f"{rate:.3g}" for rate in rates))  # this module's output


def pooled(sets: Sets, without: str = "") -> Prior:
    """The prior of all sets but one."""
    return fit_prior([(one.up, one.gap) for name, found in sets.items() if name != without for one in found])


def split(sets: Sets) -> None:
    """Each set with a prior from the others."""
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, STARTS)
        plain, best = replay(jobs, UniformProgress()), optimal(jobs)
        own = decided(jobs, histories, pooled(sets, without=name))
        _say(f"{name} ({len(jobs)} jobs per strategy)")
        for strategy, outcome in (
            ("greedy", replay(jobs, Greedy())),
            ("uniform-progress", plain),
            ("deadline", own),
            ("optimal", best),
        ):
            _costs(strategy, jobs, outcome)
        _gap("gap closed", jobs, plain, own, best)


def variants(sets: Sets) -> None:
    """The share of the gap that is closed, by the strategy and by variants of it."""
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, STARTS)
        plain, best, believed = replay(jobs, UniformProgress()), optimal(jobs), pooled(sets, without=name)
        _say(name)
        for title, strategy in (
            ("unchanged", Deadline(TERMS, histories, believed)),
            ("no margin", Deadline(TERMS, histories, believed, margin=0.0)),
            ("prior from the set itself", Deadline(TERMS, histories, fit_prior([(h.up, h.gap) for h in histories]))),
            ("prior alone, nothing learned", _Frozen(TERMS, histories, believed)),
            ("one factor a side", _OneFactor(TERMS, histories, believed)),
            ("endings do not depend on age", Deadline(TERMS, histories, ageless(believed))),
            ("prior a power law of age", Deadline(TERMS, histories, power_law(believed))),
        ):
            _gap(title, jobs, plain, replay(jobs, strategy), best)
        literal = replay(jobs, Deadline(TERMS, histories, believed), within_two_delays)
        _gap("literal safety net for both", jobs, replay(jobs, UniformProgress(), within_two_delays), literal, best)


def margins(sets: Sets) -> None:
    """The share of the gap that each margin closes, and its difference from no margin."""
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, STARTS)
        plain, best, believed = replay(jobs, UniformProgress()), optimal(jobs), pooled(sets, without=name)
        _say(name)
        outcomes = [replay(jobs, Deadline(TERMS, histories, believed, margin)) for margin in MARGINS]
        for margin, outcome in zip(MARGINS, outcomes, strict=True):
            _gap(f"margin {margin:g}", jobs, plain, outcome, best)
            change = _closed(jobs, plain, outcome, best).mean(axis=1) - _closed(jobs, plain, outcomes[0], best).mean(
                axis=1
            )
            _say(f"  {'  against none':60}", f"{change[0]:+.3f}", _interval(change[1:]))


def readings(sets: Sets) -> None:
    """The published strategies under each reading of the rules."""
    nets: tuple[tuple[str, SafetyNet], ...] = (("net when idle", net_when_idle), ("literal net", within_two_delays))
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, 100)
        _say(f"{name} ({len(jobs)} jobs per strategy)")
        for title, net in nets:
            _costs(f"greedy, {title}", jobs, replay(jobs, Greedy(), net))
            for delays in (2, 1, 0):
                strategy = f"uniform-progress, {title}, back to spot at t + {delays} delays"
                _costs(strategy, jobs, replay(jobs, UniformProgress(delays), net))
        best = optimal(jobs)
        _costs("optimal", jobs, best)
        _spread(jobs, replay(jobs, Greedy()), replay(jobs, UniformProgress()), best)


class _Frozen(Deadline):
    """Uses the prior and learns nothing."""

    def _learned(self, seen: SpellOutlook) -> SpellOutlook:
        return replace(seen, steps=np.zeros_like(seen.steps))


class _OneFactor(Deadline):
    """Learns one factor per side, from the young spells, which are more frequent."""

    def _learned(self, seen: SpellOutlook) -> SpellOutlook:
        return replace(seen, steps=seen.steps[:, [0, 0, 2, 2]])


def ageless(believed: Prior) -> Prior:
    """The same mean time to an ending at every age: a memoryless model."""
    survival = {side: _mean_rate(np.array(rates)) for side, rates in (("down", believed.down), ("up", believed.up))}
    return Prior((survival["down"],) * CLASSES, (survival["up"],) * CLASSES)


def _mean_rate(rates: np.ndarray) -> float:
    width = np.diff(AGES, append=AGES[-1] + 48 * HOUR) / HOUR
    reached = np.exp(-np.concatenate(([0.0], np.cumsum(rates * width)[:-1])))
    time = reached * (1 - np.exp(-rates * width)) / rates
    return float((rates * time).sum() / time.sum())


def power_law(believed: Prior) -> Prior:
    """c / (age + b), with c and b by least squares of the logarithms on a grid of b."""
    middle = (AGES + np.diff(AGES, append=AGES[-1] * 2) / 2) / HOUR
    fitted = []
    for rates in (believed.down, believed.up):
        options = []
        for shift in np.geomspace(0.05, 3, 60):
            shape = -np.log(middle + shift)
            level = float(np.mean(np.log(rates) - shape))
            options.append((float(np.sum((np.log(rates) - shape - level) ** 2)), tuple(np.exp(shape + level).tolist())))
        fitted.append(min(options)[1])
    return Prior(*fitted)


def _spread(jobs: DeadlineJobs, *outcomes: DeadlineOutcome) -> None:
    """The scatter of means over few random starts, the same for all traces, around the mean over all."""
    rng = np.random.default_rng(0)
    names, shares = ("greedy", "uniform-progress", "optimal"), [cost_ratios(jobs, one) for one in outcomes]
    traces = np.unique(jobs.history).size
    for name, share in zip(names, shares, strict=True):
        spread = []
        for slack in SLACKS:
            by_start = share[jobs.slack == slack].reshape(traces, -1).mean(axis=0)
            means = rng.choice(by_start, (2000, STARTS)).mean(axis=1)
            spread.append(f"{means.std():.3f}")
        _say(f"  {'standard deviation over ' + str(STARTS) + ' shared starts, ' + name:60}", *spread)


def _costs(title: str, jobs: DeadlineJobs, outcome: DeadlineOutcome) -> None:
    shares = cost_ratios(jobs, outcome)
    by_slack = [f"{shares[jobs.slack == slack].mean():.3f}" for slack in SLACKS]
    _say(f"  {title:60}", *by_slack, f"misses {int(outcome.missed.sum())}")


def _gap(title: str, jobs: DeadlineJobs, plain: DeadlineOutcome, own: DeadlineOutcome, best: DeadlineOutcome) -> None:
    closed = _closed(jobs, plain, own, best)
    mean = closed.mean(axis=1)
    _say(f"  {title:60}", *(f"{share:.2f}" for share in closed[0]), f"mean {mean[0]:.3f}", _interval(mean[1:]))


def _closed(jobs: DeadlineJobs, plain: DeadlineOutcome, own: DeadlineOutcome, best: DeadlineOutcome) -> np.ndarray:
    """The share of the gap that is closed, one column per slack: first for all traces, then for each resampling of
    them.

    Every strategy gets the same resamplings, so that differences are paired.
    """
    traces = np.unique(jobs.history)
    drawn = np.random.default_rng(0).integers(0, traces.size, (RESAMPLED, traces.size))
    weights = np.array([np.bincount(row, minlength=traces.size) for row in (np.arange(traces.size), *drawn)])
    columns = []
    for slack in SLACKS:
        members = [(jobs.slack == slack) & (jobs.history == trace) for trace in traces]
        plain_sum, own_sum, best_sum = (
            weights @ [cost_ratios(jobs, outcome)[member].sum() for member in members] for outcome in (plain, own, best)
        )
        columns.append((plain_sum - own_sum) / (plain_sum - best_sum))
    return np.stack(columns, axis=1)


def _interval(resampled: np.ndarray) -> str:
    low, high = np.quantile(resampled, (0.05, 0.95))
    return f"[{low:.3f}, {high:.3f}]"


def _say(*words: str) -> None:
    print(*words, flush=True)  # this module's output


if __name__ == "__main__":
    main(sys.argv[1:])
