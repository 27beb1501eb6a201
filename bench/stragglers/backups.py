"""DBW in small: the loss over virtual time, against every static number of backup workers and the
blind variant.

The time of each worker's clock is 1 - a + a * Exp(1) of its usual time, drawn before the job, so
that all variants meet the same slow workers. A static number of workers trains once with the
learning rate of all workers, and once with a rate in proportion to that number. The blind variant
takes the number of gradients for their gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from math import inf
from pathlib import Path

import numpy as np

from agileml import train
from agileml.apps.mlr import LogisticRegression
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.policies.dbw import DBW, FixedWait, WaitPolicy
from agileml.policies.stragglers import Stragglers
from agileml.reference import iterate
from agileml.slowdowns import Replay
from agileml.work import Accepted

VARIANCES = (0.0, 0.2, 1.0)
"""The three distributions: the `a` of 1 - a + a * Exp(1)."""

BATCH, BATCHES = 500, 4
"""Examples of a worker in a clock, and how many batches it has."""

RATE = 0.2
"""The learning rate of all workers together."""

TARGET = 0.25
"""The loss to reach, from 2.3 at the start."""

SECONDS = 60.0
"""Virtual seconds of each job; a usual clock takes one."""

DRAWN = 997
"""Times drawn for each worker before they repeat."""

MIN_GAIN = 1.5
"""To reach with a = 1: how many times sooner than the best number with a proportional rate."""


class Batches(LogisticRegression):
    """Logistic regression in clocks of one batch for each worker. A late worker stops at the end of
    a chunk.
    """

    chunk = BATCH // 10


@dataclass(frozen=True)
class Variant:
    """How many workers each clock waits for, and the learning rate."""

    name: str
    policy: WaitPolicy
    rate: float = RATE


@dataclass(frozen=True)
class ErrorAction:
    """By clock: virtual seconds until it began, the loss then, and the number of workers that it
    waited for.
    """

    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    waited_for: tuple[int, ...]

    @property
    def reached(self) -> float:
        """Seconds until the loss was at its target; infinite if it never was."""
        return next(
            (at for at, loss in zip(self.seconds, self.losses, strict=True) if loss <= TARGET), inf
        )


Courses = Mapping[str, ErrorAction]


def variants(workers: int) -> list[Variant]:
    """DBW, the blind variant, and every static number at both rates, which are the same for all
    workers.
    """
    return [
        Variant("DBW", DBW()),
        Variant("blind", DBW(blind=True)),
        *(Variant(_same(k), FixedWait(workers - k)) for k in range(1, workers + 1)),
        *(
            Variant(_proportional(k), FixedWait(workers - k), RATE * k / workers)
            for k in range(1, workers)
        ),
    ]


def played(variant: Variant, workers: int, variance: float, seed: int = 0) -> ErrorAction:
    """One job. The decisions in its log are replayed for the loss of the whole sample, as late
    workers report none.
    """
    rng = np.random.default_rng((seed, int(100 * variance)))
    drawn = 1 - variance + variance * rng.exponential(size=(workers, DRAWN))
    trainer = Batches(
        features=32,
        spread=4.0,
        examples=BATCHES * BATCH * workers,
        parts=workers,
        batch=BATCH,
        rate=variant.rate,
    )
    log: list[Iteration] = []
    train(
        trainer,
        f"1+{workers - 1}",
        SimulatedEngine(Machines(seconds_per_item=1 / BATCH)),
        seconds=SECONDS,
        chaos=Chaos(slowdowns=(Replay(tuple(map(tuple, drawn.tolist()))),)),
        listener=log.append,
        seed=seed,
        stage=1,
        stragglers=Stragglers(backup_workers=variant.policy),
        partitions=1,
        loss_sample=0,
        checkpoint_every=0,
    )
    accepted = {iteration.clock: Accepted(iteration.clock, iteration.accepted) for iteration in log}
    models = iterate(trainer, seed, deterministic=False, accepted=accepted)
    return ErrorAction(
        tuple(accumulate((iteration.seconds for iteration in log[:-1]), initial=0.0)),
        tuple(loss for _, _, loss in islice(models, len(log))),
        tuple(iteration.sums.waited_for for iteration in log),
    )


def run(workers: int, plots: Path | None) -> str:
    """The table of all variants, and how far the goals are met; draws the courses."""
    courses = {
        a: {variant.name: played(variant, workers, a) for variant in variants(workers)}
        for a in VARIANCES
    }
    if plots is not None:
        _draw(courses, workers, plots / "backups.svg")
    lines = ["## Backup workers: seconds until the loss is at its target", ""]
    lines.append(
        f"{workers} workers, batches of {BATCH} examples, a usual clock of 1 s, times 1 - a + a "
        f"Exp(1), loss {TARGET}"
        f" after 2.3; -: not within {SECONDS:g} s. k workers are awaited, at the learning rate of "
        "all / in proportion."
    )
    lines += [
        "",
        f"| k | {' | '.join(f'a = {a:g}' for a in VARIANCES)} |",
        "| --- |" + " ---: |" * len(VARIANCES),
    ]
    for name in ("DBW", "blind"):
        lines.append(f"| {name} | {' | '.join(_shown(courses[a][name]) for a in VARIANCES)} |")
    for k in range(1, workers + 1):
        both = [
            (each[_same(k)], each.get(_proportional(k), each[_same(k)]))
            for each in courses.values()
        ]
        lines.append(
            f"| {k} | {' | '.join(f'{_shown(same)} / {_shown(other)}' for same, other in both)} |"
        )
    lines += ["", *(line for a in VARIANCES for line in _goals(a, courses[a], workers))]
    return "\n".join(lines) + "\n"


def _goals(variance: float, courses: Courses, workers: int) -> list[str]:
    """How many times sooner DBW reaches the target than what it is to be compared with, and the
    goal.
    """
    dbw = courses["DBW"].reached
    rivals = {
        "the best k at the same rate": min(
            courses[_same(k)].reached for k in range(1, workers + 1)
        ),
        "the best k in proportion": min(
            courses[name].reached
            for name in (_same(workers), *map(_proportional, range(1, workers)))
        ),
        "the blind variant": courses["blind"].reached,
    }
    goals = dict.fromkeys(rivals, 1.0)
    if variance == 1:
        goals["the best k in proportion"] = MIN_GAIN
    return [
        f"- a = {variance:g}: DBW is {rival / dbw:.2f} times as fast as {name} (to reach: "
        f"{goals[name]:g})"
        for name, rival in rivals.items()
    ]


def _same(k: int) -> str:
    return f"{k}"


def _proportional(k: int) -> str:
    return f"{k} proportional"


def _shown(course: ErrorAction) -> str:
    return "-" if course.reached == inf else f"{course.reached:.1f}"


def _draw(by_variance: Mapping[float, Courses], workers: int, path: Path) -> None:
    """The loss over time, and the numbers that were chosen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    for column, (variance, courses) in enumerate(by_variance.items()):
        losses, chosen = (
            figure.add_subplot(2, len(by_variance), row * len(by_variance) + column + 1)
            for row in range(2)
        )
        same, other = (
            min(map(named, range(1, workers)), key=lambda k: courses[k].reached)
            for named in (_same, _proportional)
        )
        for name in ("DBW", "blind", _same(workers), same, other):
            losses.plot(
                courses[name].seconds,
                courses[name].losses,
                label=f"k = {name}" if name[0].isdigit() else name,
            )
        losses.axhline(TARGET, color="gray", linewidth=0.8)
        losses.set(title=f"a = {variance:g}", xlim=(0, SECONDS), yscale="log")
        losses.legend(fontsize="small")
        for name in ("DBW", "blind"):
            chosen.step(courses[name].seconds, courses[name].waited_for, where="post", label=name)
        chosen.set(xlabel="virtual seconds", xlim=(0, SECONDS), ylim=(0, workers + 1))
        if not column:
            losses.set_ylabel("loss")
            chosen.set_ylabel("workers awaited (k)")
    figure.savefig(path)
