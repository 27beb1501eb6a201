"""DBW: training with backup workers whose number is chosen for each clock, against the best fixed
numbers.

Logistic regression by minibatches, without the training engine, so that many seeds take a minute.
Workers take 1 - a + a Exp(1) for a clock and stop at a tenth of it when they are late.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from agileml.apps.mlr import LogisticRegression
from agileml.policies.dbw import (
    DBW,
    ClockBegins,
    FixedWait,
    GradientArrived,
    GradientsSummed,
    WaitPolicy,
)
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

CHUNKS = 10
SHOWN = 3000
"""Examples over which the loss is measured."""

ENOUGH = 40
"""Clocks: the loss to reach is what waiting for all workers reaches in this many."""

DRAWN = 997
"""Times drawn for each worker before they repeat."""

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


class LearningTask:
    """The examples of all workers, drawn with a seed."""

    def __init__(self, setting: Setting, workers: int, seed: int) -> None:
        self.setting, self.workers, self.seed = setting, workers, seed
        app = LogisticRegression(
            features=32, spread=setting.spread, examples=setting.batch * setting.batches * workers, parts=workers,
            batch=setting.batch, rate=setting.rate, seed=seed,
        )  # fmt: skip
        seen = [shard.examples for shard in app.shards()]
        self._inputs, self._classes = (
            [part.features for part in seen],
            [part.classes for part in seen],
        )
        step = 1 + app.examples // SHOWN
        self._shown = np.concatenate(self._inputs)[::step], np.concatenate(self._classes)[::step]
        weights = np.zeros((33, 10), np.float32)

        for clock in range(ENOUGH):
            mean = np.mean(
                [self.gradient(weights, worker, clock) for worker in range(workers)], axis=0
            )
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


def seconds_to_target(
    task: LearningTask, policy: WaitPolicy, variance: float, rate: float | None = None
) -> float:
    """Virtual seconds until the loss is at its target; with a learning rate of its own, or that of
    the setting.
    """
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
        policy = policy.observe(gradients_summed(clock, gradients, mean, before))[0]
        weights, before, waited = (
            weights - np.float32(rate or task.setting.rate) * mean,
            mean,
            len(counted),
        )

    return min(now, MOST)


def gradients_summed(
    clock: int, gradients: Floats, mean: Floats, before: Floats | None
) -> GradientsSummed:
    """The sums over the gradients of a clock, for the policy."""
    count = len(gradients)
    spread = float(((gradients - mean) ** 2).sum()) / (count - 1) if count > 1 else None
    along = None if before is None else float((mean * before).sum())
    return GradientsSummed(clock, count, float((mean**2).sum()), spread, along)


WORKERS = 16
QUIET, NOISY = Setting(500, 4, 0.2, 4.0), Setting(10, 50, 1.0, 4.0)
"""The paper's batches, whose gradients hardly differ here, and batches as small as make them
differ."""


def _against_fixed(seed: int, data: PaperData, *, setting: Setting) -> FigureValues:
    """How many times sooner DBW is at the loss than the best fixed number, whose learning rate is
    in proportion.
    """
    del data
    task, values = LearningTask(setting, WORKERS, seed), {}
    for variance in (0.2, 1.0):
        dbw = seconds_to_target(task, DBW(), variance)
        fixed = min(
            seconds_to_target(task, FixedWait(WORKERS - k), variance, setting.rate * k / WORKERS)
            for k in (4, 6, 8, 10, 12, 14, 16)
        )
        values[f"best fixed number over DBW, a = {variance:g}"] = fixed / dbw

    return values


RESULTS = (
    Experiment(
        "dbw-fixed",
        partial(_against_fixed, setting=QUIET),
        4.0,
        "Logistic regression on drawn examples, where the paper trains a network on MNIST: DBW "
        "gains more the less"
        " gradients differ; where they differ much and times vary (a = 1), it is slower than the "
        "best fixed number.",
        cause="gradients that differ (batches of 10 in place of 500)",
        switched=partial(_against_fixed, setting=NOISY),
    ),
)
