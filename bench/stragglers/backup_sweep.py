"""`python -m bench.stragglers.backup_sweep [--workers N] [--seeds N] [--rates|--quadratic]
[NAME...]`: DBW with noise.

Logistic regression by minibatches, without the training engine, so that many seeds take a minute.
Workers take 1 - a + a Exp(1) for a clock and stop at a tenth of it when they are late. Settings
differ in the noise of gradients and in the learning rate. Prints the mean time to a loss of the
best fixed number of workers of each setting; and relative to it that of DBW, of DBW as the paper
has it, which takes the learning rate to be the largest that pays, and of the blind variant. With
`--rates`: the time of DBW and of `auto` relative to waiting for all, at other learning rates, too.
With `--quadratic`, the same for a loss that is half the square of the distance to the best weights,
whose gradient has noise of the same size everywhere, and for rates up to .9 of the largest that
pays, medians and means.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from agileml.policies.dbw import DBW, ClockBegins, FixedWait, GradientArrived, WaitPolicy
from bench.stragglers.backups import VARIANCES
from spotctl.lab.papers.backups import (
    NOISY,
    QUIET,
    LearningTask,
    Setting,
    gradients_summed,
    seconds_to_target,
)

RATES = (0.5, 1.0, 2.0)
"""Learning rates of `--rates`, relative to those of the settings."""

SETTINGS = {
    "quiet": QUIET,
    "noisy": NOISY,
    "overlapping": Setting(50, 40, 0.5, 2.0),
    "very noisy": Setting(5, 100, 0.5, 2.0),
}


QUADRATICS = (
    (0.9, 1.0, 0.05),
    (0.9, 0.5, 0.02),
    (0.5, 1.0, 0.02),
    (0.2, 1.0, 0.01),
    (0.2, 4.0, 0.05),
)
"""Learning rate, deviation of each number of a gradient, and the loss to reach as a share of the
first."""

DIMENSIONS = 20

LONGEST = 1500
"""Clocks of a quadratic."""


class Assumed(DBW):
    """Takes the learning rate to be the largest that pays."""

    @property
    def steepness(self) -> float:
        """As in the paper."""
        return 1.0


def rows(name: str, workers: int, seeds: int) -> list[str]:
    """The lines of the table for a setting."""
    tasks = [LearningTask(SETTINGS[name], workers, seed) for seed in range(seeds)]
    lines = []
    for variance in VARIANCES:

        def mean(policy: WaitPolicy, variance: float = variance) -> float:
            return fmean(seconds_to_target(task, policy, variance) for task in tasks)

        fixed = {k: mean(FixedWait(workers - k)) for k in range(1, workers + 1)}
        best = min(fixed, key=lambda k: fixed[k])
        cells = (mean(policy) / fixed[best] for policy in (DBW(), Assumed(), DBW(blind=True)))
        shown = " | ".join(f"{cell:.2f}" for cell in (*cells, fixed[workers] / fixed[best]))
        lines.append(f"| {name} | {variance:g} | {fixed[best]:.1f} (k = {best}) | {shown} |")
    return lines


def rate_lines(name: str, workers: int, seeds: int) -> Iterator[str]:
    """The lines of the table of learning rates for a setting."""
    setting = SETTINGS[name]
    for factor in RATES:
        tasks = [
            LearningTask(replace(setting, rate=factor * setting.rate), workers, seed)
            for seed in range(seeds)
        ]
        for variance in VARIANCES:
            whole, dbw, auto = (
                fmean(seconds_to_target(task, policy, variance) for task in tasks)
                for policy in (FixedWait(0), DBW(), DBW(auto=True))
            )
            rate = f"{factor * setting.rate:g}"
            yield f"| {name} | {rate} | {variance:g} | {whole:.1f} | {dbw / whole:.2f} | {auto / whole:.2f} |"


def seconds_of_quadratic(
    quadratic: tuple[float, float, float],
    policy: WaitPolicy,
    variance: float,
    workers: int,
    seed: int,
) -> float:
    """Virtual seconds until the loss of a quadratic is low enough; workers that are late stop at
    once.
    """
    rate, deviation, share = quadratic
    rng = np.random.default_rng((seed, int(100 * variance)))
    weights, before, waited = np.full(DIMENSIONS, 3.0, np.float32), None, workers
    target, now = share * float(weights @ weights), 0.0
    for clock in range(1, LONGEST + 1):
        policy, (proposal,) = policy.observe(ClockBegins(clock, workers))
        times = np.sort(1 - variance + variance * rng.exponential(size=workers))
        noise = rng.standard_normal((workers, DIMENSIONS)).astype(np.float32)
        count = proposal.gradients
        for number, seconds in enumerate(times[:count].tolist(), 1):
            policy = policy.observe(GradientArrived(waited, number, seconds))[0]
        now += float(times[count - 1])
        gradients = weights + np.float32(deviation) * noise[:count]
        mean = gradients.mean(axis=0)
        policy = policy.observe(gradients_summed(clock, gradients, mean, before))[0]
        weights, before, waited = weights - np.float32(rate) * mean, mean, count
        if float(weights @ weights) < target:
            break
    return now


def quadratic_lines(workers: int, seeds: int) -> Iterator[str]:
    """The lines of the table of quadratics."""
    policies = FixedWait(0), DBW(), DBW(auto=True)
    for quadratic in QUADRATICS:
        for variance in (0.2, 0.5, 1.0):
            whole, dbw, auto = (
                [
                    seconds_of_quadratic(quadratic, policy, variance, workers, seed)
                    for seed in range(seeds)
                ]
                for policy in policies
            )
            cells = (
                f"{mean(times) / mean(whole):.2f}"
                for times in (dbw, auto)
                for mean in (median, fmean)
            )
            rate, deviation, _ = quadratic
            yield f"| {rate:g} | {deviation:g} | {variance:g} | {fmean(whole):.1f} | {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.stragglers.backup_sweep", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"settings: {', '.join(SETTINGS)}")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--rates", action="store_true", help="other learning rates, relative to waiting for all"
    )
    parser.add_argument(
        "--quadratic", action="store_true", help="a quadratic loss, relative to waiting for all"
    )
    chosen = parser.parse_args(words)
    if unknown := set(chosen.names) - SETTINGS.keys():
        parser.error(f"unknown setting {min(unknown)!r}: choose from {', '.join(SETTINGS)}")
    names = chosen.names or list(SETTINGS)
    if chosen.quadratic:
        print(f"{chosen.workers} workers, {chosen.seeds} seeds; relative to waiting for all\n")
        print(
            "| rate, of 1/L | deviation | a | seconds of all | DBW, median | mean | auto, median | "
            "mean |"
        )
        print("| ---: |" + " ---: |" * 7)
        for line in quadratic_lines(chosen.workers, chosen.seeds):
            print(line, flush=True)
        return
    if chosen.rates:
        print(
            f"{chosen.workers} workers, means of {chosen.seeds} seeds; relative to waiting for "
            "all\n"
        )
        print(
            "| gradients | rate | a | seconds of all | DBW | auto |\n| --- | ---: | ---: | ---: | "
            "---: | ---: |"
        )
        for line in (
            line for name in names for line in rate_lines(name, chosen.workers, chosen.seeds)
        ):
            print(line, flush=True)
        return
    print(
        f"{chosen.workers} workers, means of {chosen.seeds} seeds; DBW and others relative to the "
        "best fixed k\n"
    )
    print(
        "| gradients | a | seconds of the best fixed k | DBW | as in the paper | blind | all "
        "workers |"
    )
    print("| --- | ---: |" + " ---: |" * 5)
    for name in names:
        for line in rows(name, chosen.workers, chosen.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
