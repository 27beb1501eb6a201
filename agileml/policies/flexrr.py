"""FlexRR's decisions: whether a worker has fallen behind another one, and how much of its work it lends.

Workers decide this among themselves; the controller only says who may help whom. Timers of different machines are not
synchronized: the smallest difference between a message's timer and that of its receiver counts as its delay of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The settings of FlexRR, as fractions of a worker's work in a clock (Table 3.1 of the dissertation).

    A worker reports its progress at `report_at` of its clock. One that is more than `trigger` behind lends `first`,
    and `follow_up` times as much whenever that has been begun.
    """

    helpers: int = 4
    report_at: float = 0.75
    trigger: float = 0.2
    first: float = 0.025
    follow_up: float = 2.0


@dataclass(frozen=True, slots=True)
class ClockTook:
    """The worker has finished its part of a clock; `seconds` of work."""

    seconds: float


@dataclass(frozen=True, slots=True)
class OtherReported:
    """Another worker's progress and timer, and this worker's own, all when the report arrived.

    `busy`: it has been lent work that it has not finished.
    """

    worker: str
    progress: float
    timer: float
    own_progress: float
    own_timer: float
    busy: bool = False


@dataclass(frozen=True, slots=True)
class OtherBegan:
    """Another worker has begun what it was lent."""

    worker: str


@dataclass(frozen=True, slots=True)
class Lend:
    """Lend this share of the work of a clock."""

    to: str
    share: float


@dataclass(frozen=True, slots=True)
class FlexRR:
    """The decisions of one worker; an immutable value. `usual` is its weighted mean time of a clock; 0: unknown."""

    settings: Reassignment = field(default_factory=Reassignment)
    usual: float = 0.0
    offsets: Mapping[str, float] = field(default_factory=dict)

    def observe(self, report: ClockTook | OtherReported | OtherBegan) -> tuple[FlexRR, tuple[Lend, ...]]:
        """The policy that has seen this report, and what it proposes now."""
        match report:
            case ClockTook():
                usual = (self.usual + report.seconds) / 2 if self.usual else report.seconds
                return replace(self, usual=usual), ()
            case OtherBegan():
                return self, (Lend(report.worker, self.settings.first * self.settings.follow_up),)
            case OtherReported():
                apart = report.own_timer - report.timer
                offset = min(apart, self.offsets.get(report.worker, inf))
                behind = report.progress - report.own_progress
                if self.usual:
                    behind += (apart - offset) / self.usual
                asks = behind > self.settings.trigger and not report.busy
                lends = (Lend(report.worker, self.settings.first),) if asks else ()
                return replace(self, offsets={**self.offsets, report.worker: offset}), lends


def help_groups(workers: Sequence[str], helpers: int) -> dict[str, tuple[str, ...]]:
    """By worker, those that it may help: each has `helpers` others, at distances that double, around a circle.

    Neighbors at all distances let work spread over many workers in a few steps.
    """
    count = len(workers)
    steps: list[int] = []
    distance = 1
    while len(steps) < min(helpers, count - 1):
        step = distance % count
        while step in steps or not step:
            step = (step + 1) % count
        steps.append(step)
        distance *= 2
    return {name: tuple(workers[(at - step) % count] for step in steps) for at, name in enumerate(workers)}
