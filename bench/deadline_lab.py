"""How the deadline strategy came about, in numbers: `python -m bench.deadline_lab WHAT GLOB GLOB...`.

Each glob is one set of availability traces. `prior` pools them and prints the endings per hour that the strategy takes
as its prior. `split` takes the prior from all sets but one and reports on that one. `variants` does the same for what
was tried and left out. `readings` replays the published schemes under each reading of the rules, set by set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bidbrain.backtest.deadline import History, Jobs, Outcome, cost_ratios, lay_out, optimal, replay
from bidbrain.backtest.deadline_schemes import Deadline, Greedy, UniformProgress
from bidbrain.strategies.deadline_job import SafetyNet, Terms, net_when_idle, within_two_delays
from bidbrain.strategies.deadline_spells import AGES, CLASSES, Outlook, Prior, fit_prior
from pricing_data.units import HOUR
from spotctl.deadline import read

TERMS = Terms(48 * HOUR, HOUR // 5, 3.0)
SLACKS = (1.1, 1.25, 1.5, 2.0)
STARTS = 30

Sets = dict[str, tuple[History, ...]]


def main(words: Sequence[str]) -> None:
    """Prints what the first word asks for."""
    tasks: dict[str, Callable[[Sets], None]] = {
        "prior": prior,
        "split": split,
        "variants": variants,
        "readings": readings,
    }
    if len(words) < 2 or words[0] not in tasks:
        sys.exit(f"usage: python -m bench.deadline_lab {{{','.join(tasks)}}} GLOB GLOB...")
    tasks[words[0]]({pattern: read(pattern) for pattern in words[1:]})


def prior(sets: Sets) -> None:
    """The pooled prior of all sets."""
    found = pooled(sets)
    for side, rates in (("down", found.down), ("up", found.up)):
        print(f"{side:5}", ", ".join(f"{rate:.3g}" for rate in rates))  # the module prints by design


def pooled(sets: Sets, without: str = "") -> Prior:
    """The prior of all sets but one."""
    return fit_prior([(one.up, one.gap) for name, found in sets.items() if name != without for one in found])


def split(sets: Sets) -> None:
    """Each set under a prior from the others."""
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, STARTS)
        plain, best = replay(jobs, UniformProgress()), optimal(jobs)
        own = replay(jobs, Deadline(TERMS, histories, pooled(sets, without=name)))
        _say(f"{name} ({len(jobs)} jobs a scheme)")
        for scheme, outcome in (
            ("greedy", replay(jobs, Greedy())),
            ("uniform-progress", plain),
            ("deadline", own),
            ("optimal", best),
        ):
            _costs(scheme, jobs, outcome)
        _gap("gap closed", jobs, plain, own, best)


def variants(sets: Sets) -> None:
    """The share of the gap that is closed, for the strategy and for what was left out of it or changed."""
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, STARTS)
        plain, best, believed = replay(jobs, UniformProgress()), optimal(jobs), pooled(sets, without=name)
        _say(name)
        for title, scheme in (
            ("as it is", Deadline(TERMS, histories, believed)),
            ("prior from the set itself", Deadline(TERMS, histories, fit_prior([(h.up, h.gap) for h in histories]))),
            ("prior alone, nothing learnt", _Frozen(TERMS, histories, believed)),
            ("one factor a side", _OneFactor(TERMS, histories, believed)),
            ("endings do not depend on age", Deadline(TERMS, histories, ageless(believed))),
            ("prior a power law of age", Deadline(TERMS, histories, power_law(believed))),
        ):
            _gap(title, jobs, plain, replay(jobs, scheme), best)
        literal = replay(jobs, Deadline(TERMS, histories, believed), within_two_delays)
        _gap("literal safety net for both", jobs, replay(jobs, UniformProgress(), within_two_delays), literal, best)


def readings(sets: Sets) -> None:
    """The published schemes under each reading of what the rules leave open."""
    nets: tuple[tuple[str, SafetyNet], ...] = (("net when idle", net_when_idle), ("literal net", within_two_delays))
    for name, histories in sets.items():
        jobs = lay_out(histories, TERMS, SLACKS, 100)
        _say(f"{name} ({len(jobs)} jobs a scheme)")
        for title, net in nets:
            _costs(f"greedy, {title}", jobs, replay(jobs, Greedy(), net))
            for delays in (2, 1, 0):
                scheme = f"uniform-progress, {title}, back to spot at t + {delays} delays"
                _costs(scheme, jobs, replay(jobs, UniformProgress(delays), net))
        best = optimal(jobs)
        _costs("optimal", jobs, best)
        _spread(jobs, replay(jobs, Greedy()), replay(jobs, UniformProgress()), best)


class _Frozen(Deadline):
    """Believes the prior whatever it sees."""

    def _learnt(self, seen: Outlook) -> Outlook:
        return replace(seen, steps=np.zeros_like(seen.steps))


class _OneFactor(Deadline):
    """Learns one factor a side, that of young spells, of which there are more."""

    def _learnt(self, seen: Outlook) -> Outlook:
        return replace(seen, steps=seen.steps[:, [0, 0, 2, 2]])


def ageless(believed: Prior) -> Prior:
    """The same mean time to an ending at every age: what a memoryless model would believe."""
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


def _spread(jobs: Jobs, *outcomes: Outcome) -> None:
    """How far means over few random starts, the same for all traces, scatter around the mean over all."""
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


def _costs(title: str, jobs: Jobs, outcome: Outcome) -> None:
    shares = cost_ratios(jobs, outcome)
    by_slack = [f"{shares[jobs.slack == slack].mean():.3f}" for slack in SLACKS]
    _say(f"  {title:60}", *by_slack, f"misses {int(outcome.missed.sum())}")


def _gap(title: str, jobs: Jobs, plain: Outcome, own: Outcome, best: Outcome) -> None:
    means = [
        [cost_ratios(jobs, outcome)[jobs.slack == slack].mean() for slack in SLACKS] for outcome in (plain, own, best)
    ]
    closed = (np.array(means[0]) - means[1]) / (np.array(means[0]) - means[2])
    _say(f"  {title:60}", *(f"{share:.2f}" for share in closed), f"mean {closed.mean():.3f}")


def _say(*words: str) -> None:
    print(*words, flush=True)  # the module prints by design


if __name__ == "__main__":
    main(sys.argv[1:])
