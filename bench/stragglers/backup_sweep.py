"""`python -m bench.stragglers.backup_sweep [--workers N] [--seeds N] [--rates] [NAME...]`: DBW with noisier gradients.

Logistic regression by minibatches, without the training engine, so that many seeds take a minute. Workers take
1 - a + a Exp(1) for a clock and stop at a tenth of it when they are late. Settings differ in the noise of gradients
and in the learning rate. Prints the mean time to a loss of the best fixed number of workers of each setting; and
relative to it that of DBW, of DBW as the paper has it, which takes the learning rate to be the largest that pays, and
of the blind variant. With `--rates`: the time of DBW and of `auto` relative to waiting for all, at other learning
rates, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from agileml.apps.mlr import LogisticRegression
from agileml.policies.dbw import DBW, ClockBegins, FixedWait, GradientArrived, GradientsSummed, WaitPolicy
from bench.stragglers.backups import DRAWN, VARIANCES

CHUNKS = 10
SHOWN = 3000
"""Examples over which the loss is measured."""

ENOUGH = 40
"""Clocks: the loss to reach is what waiting for all workers reaches in this many."""

RATES = (0.5, 1.0, 2.0)
"""Learning rates of `--rates`, relative to those of the settings."""

MOST = 400.0
"""Seconds that count if it is not reached."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Setting:
    """Examples in a batch, batches of a worker, learning rate, and distance of the classes."""

    batch: int
    batches: int
    rate: float
    spread: float


SETTINGS = {
    "quiet": Setting(500, 4, 0.2, 4.0),
    "noisy": Setting(10, 50, 1.0, 4.0),
    "overlapping": Setting(50, 40, 0.5, 2.0),
    "very noisy": Setting(5, 100, 0.5, 2.0),
}


class Assumed(DBW):
    """Takes the learning rate to be the largest that pays."""

    @property
    def steepness(self) -> float:
        """As in the paper."""
        return 1.0


class Task:
    """The examples of all workers, drawn with a seed."""

    def __init__(self, setting: Setting, workers: int, seed: int) -> None:
        self.setting, self.workers, self.seed = setting, workers, seed
        app = LogisticRegression(
            features=32, spread=setting.spread, examples=setting.batch * setting.batches * workers, parts=workers,
            batch=setting.batch, rate=setting.rate, seed=seed,
        )  # fmt: skip
        seen = [shard.examples for shard in app.shards()]
        self._inputs, self._classes = [part.features for part in seen], [part.classes for part in seen]
        step = 1 + app.examples // SHOWN
        self._shown = np.concatenate(self._inputs)[::step], np.concatenate(self._classes)[::step]
        weights = np.zeros((33, 10), np.float32)
        for clock in range(ENOUGH):
            mean = np.mean([self.gradient(weights, worker, clock) for worker in range(workers)], axis=0)
            weights = weights - np.float32(setting.rate) * mean
        self.target = self.loss(weights)

    def gradient(self, weights: Floats, worker: int, clock: int) -> Floats:
        """The gradient of the loss over a worker's batch."""
        first = clock % self.setting.batches * self.setting.batch
        part = slice(first, first + self.setting.batch)
        inputs, classes = self._inputs[worker][part], self._classes[worker][part]
        excess = _shares(inputs @ weights)
        excess[np.arange(len(classes)), classes] -= 1
        gradient: Floats = inputs.T @ excess / np.float32(len(classes))
        return gradient

    def loss(self, weights: Floats) -> float:
        """Over a sample of all examples."""
        inputs, classes = self._shown
        shares = _shares(inputs @ weights)
        return float(-np.log(np.maximum(shares[np.arange(len(classes)), classes], 1e-30)).mean())


def _shares(scores: Floats) -> Floats:
    powers: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def seconds_to_target(task: Task, policy: WaitPolicy, variance: float) -> float:
    """Virtual seconds until the loss is at its target."""
    rng = np.random.default_rng((task.seed, int(100 * variance)))
    drawn = 1 - variance + variance * rng.exponential(size=(task.workers, DRAWN))
    weights, before = np.zeros((33, 10), np.float32), None
    now, free, clock, waited = 0.0, np.zeros(task.workers), 0, task.workers
    while now < MOST and task.loss(weights) > task.target:
        clock += 1
        policy, (proposal,) = policy.observe(ClockBegins(clock, task.workers))
        began, takes = np.maximum(now, free), drawn[:, (clock - 1) % DRAWN]
        order = np.argsort(began + takes, kind="stable")
        counted = order[: proposal.gradients]
        for number, worker in enumerate(counted, 1):
            arrived = float(began[worker] + takes[worker] - now)
            policy = policy.observe(GradientArrived(waited, number, arrived))[0]
        now = float((began + takes)[counted[-1]])
        chunks = np.ceil(np.maximum(0, now - began) / takes * CHUNKS)
        free = np.where(began < now, began + chunks * takes / CHUNKS, now)
        free[counted] = now
        gradients = np.stack([task.gradient(weights, worker, clock - 1) for worker in counted])
        mean = gradients.mean(axis=0)
        policy = policy.observe(_summed(clock, gradients, mean, before))[0]
        weights, before, waited = weights - np.float32(task.setting.rate) * mean, mean, len(counted)
    return min(now, MOST)


def _summed(clock: int, gradients: Floats, mean: Floats, before: Floats | None) -> GradientsSummed:
    count = len(gradients)
    spread = float(((gradients - mean) ** 2).sum()) / (count - 1) if count > 1 else None
    along = None if before is None else float((mean * before).sum())
    return GradientsSummed(clock, count, float((mean**2).sum()), spread, along)


def rows(name: str, workers: int, seeds: int) -> list[str]:
    """The lines of the table for a setting."""
    tasks = [Task(SETTINGS[name], workers, seed) for seed in range(seeds)]
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
        tasks = [Task(replace(setting, rate=factor * setting.rate), workers, seed) for seed in range(seeds)]
        for variance in VARIANCES:
            whole, dbw, auto = (
                fmean(seconds_to_target(task, policy, variance) for task in tasks)
                for policy in (FixedWait(0), DBW(), DBW(auto=True))
            )
            rate = f"{factor * setting.rate:g}"
            yield f"| {name} | {rate} | {variance:g} | {whole:.1f} | {dbw / whole:.2f} | {auto / whole:.2f} |"


def main(words: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.stragglers.backup_sweep", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"settings: {', '.join(SETTINGS)}")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rates", action="store_true", help="other learning rates, relative to waiting for all")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.names) - SETTINGS.keys():
        parser.error(f"unknown setting {min(unknown)!r}: choose from {', '.join(SETTINGS)}")
    names = chosen.names or list(SETTINGS)
    if chosen.rates:
        print(f"{chosen.workers} workers, means of {chosen.seeds} seeds; relative to waiting for all\n")
        print("| gradients | rate | a | seconds of all | DBW | auto |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        for line in (line for name in names for line in rate_lines(name, chosen.workers, chosen.seeds)):
            print(line, flush=True)
        return
    print(f"{chosen.workers} workers, means of {chosen.seeds} seeds; DBW and others relative to the best fixed k\n")
    print("| gradients | a | seconds of the best fixed k | DBW | as in the paper | blind | all workers |")
    print("| --- | ---: |" + " ---: |" * 5)
    for name in names:
        for line in rows(name, chosen.workers, chosen.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
