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
        examples = setting.batch * setting.batches * workers
        app = LogisticRegression(
            features=32,
            spread=setting.spread,
            examples=examples,
            parts=workers,
            batch=setting.batch,
            rate=setting.rate,
            seed=seed,
        )
        seen = [shard.examples for shard in app.shards()]
        self._inputs = [part.features for part in seen]
        self._classes = [part.classes for part in seen]

        step = 1 + app.examples // SHOWN
        every_input, every_class = np.concatenate(self._inputs), np.concatenate(self._classes)
        self._shown = every_input[::step], every_class[::step]

        weights = np.zeros((33, 10), np.float32)
        for clock in range(ENOUGH):
            gradients = [self.gradient(weights, worker, clock) for worker in range(workers)]
            mean = np.mean(gradients, axis=0)
            weights = weights - np.float32(setting.rate) * mean

        self.target = self.loss(weights)

    def gradient(self, weights: Floats, worker: int, clock: int) -> Floats:
        """The gradient of the loss over a worker's batch."""
        first = clock % self.setting.batches * self.setting.batch
        part = slice(first, first + self.setting.batch)
        inputs, classes = self._inputs[worker][part], self._classes[worker][part]
        count = len(classes)
        excess = _shares(inputs @ weights)
        excess[np.arange(count), classes] -= 1
        gradient: Floats = inputs.T @ excess / np.float32(count)
        return gradient

    def loss(self, weights: Floats) -> float:
        """Over a sample of all examples."""
        inputs, classes = self._shown
        shares = _shares(inputs @ weights)
        of_class = shares[np.arange(len(classes)), classes]
        losses = -np.log(np.maximum(of_class, 1e-30))
        return float(losses.mean())


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
    random_part = rng.exponential(size=(task.workers, DRAWN))
    drawn = 1 - variance + variance * random_part
    weights, before = np.zeros((33, 10), np.float32), None
    now, free, clock, waited = 0.0, np.zeros(task.workers), 0, task.workers
    step = np.float32(rate or task.setting.rate)

    while now < MOST and task.loss(weights) > task.target:
        takes = drawn[:, clock % DRAWN]
        clock += 1
        policy, (proposal,) = policy.observe(ClockBegins(clock, task.workers))
        began = np.maximum(now, free)
        ends = began + takes
        order = np.argsort(ends, kind="stable")
        counted = order[: proposal.gradients]
        for number, worker in enumerate(counted, 1):
            arrived = float(ends[worker] - now)
            arrival = GradientArrived(waited, number, arrived)
            policy, _ = policy.observe(arrival)
        now = float(ends[counted[-1]])

        passed = np.maximum(0, now - began)
        chunks = np.ceil(passed / takes * CHUNKS)
        chunk_ends = began + chunks * takes / CHUNKS
        free = np.where(began < now, chunk_ends, now)
        free[counted] = now
        gradients = np.stack([task.gradient(weights, worker, clock - 1) for worker in counted])
        mean = gradients.mean(axis=0)
        summed = gradients_summed(clock, gradients, mean, before)
        policy, _ = policy.observe(summed)
        weights = weights - step * mean
        before, waited = mean, len(counted)

    return min(now, MOST)


def gradients_summed(
    clock: int, gradients: Floats, mean: Floats, before: Floats | None
) -> GradientsSummed:
    """The sums over the gradients of a clock, for the policy."""
    count = len(gradients)
    spread: float | None = None
    along: float | None = None
    if count > 1:
        squares = (gradients - mean) ** 2
        spread = float(squares.sum()) / (count - 1)
    if before is not None:
        products = mean * before
        along = float(products.sum())
    length = float((mean**2).sum())
    return GradientsSummed(clock, count, length, spread, along)


WORKERS = 16
QUIET, NOISY = Setting(500, 4, 0.2, 4.0), Setting(10, 50, 1.0, 4.0)
"""The paper's batches, whose gradients hardly differ here, and batches as small as make them
differ."""


def _against_fixed(seed: int, data: PaperData, *, setting: Setting) -> FigureValues:
    """How many times sooner DBW is at the loss than the best fixed number, whose learning rate is
    in proportion.
    """
    del data
    task, values = LearningTask(setting, WORKERS, seed), dict[str, float]()
    for variance in (0.2, 1.0):
        dbw, fixed = seconds_to_target(task, DBW(), variance), list[float]()
        for k in (4, 6, 8, 10, 12, 14, 16):
            policy, rate = FixedWait(WORKERS - k), setting.rate * k / WORKERS
            fixed.append(seconds_to_target(task, policy, variance, rate))
        values[f"best fixed number over DBW, a = {variance:g}"] = min(fixed) / dbw

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
