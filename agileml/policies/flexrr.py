"""FlexRR's decisions: whether a worker has fallen behind another one, and how much of its work it
lends.

Workers decide this among themselves; the controller only says who may help whom. Timers of
different machines are not synchronized: the smallest difference between a message's timer and that
of its receiver counts as its delay of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import ceil, inf

from agileml.errors import check_number, check_whole


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The settings of FlexRR, as fractions of a worker's work in a clock (Table 3.1 of the
    dissertation).

    A worker reports its progress at `report_at` of its clock. One that is more than `trigger`
    behind lends `first`, and `follow_up` times as much whenever that has been begun. Workers
    compare themselves with others after each chunk. If they have fewer than `checks` chunks in a
    clock that is too rarely, and the ends of clocks are reported too.
    """

    helpers: int = 4
    report_at: float = 0.75
    trigger: float = 0.2
    first: float = 0.025
    follow_up: float = 2.0
    checks: int = 100

    def __post_init__(self) -> None:
        for name, most in (
            ("report_at", 1.0),
            ("trigger", inf),
            ("first", 1.0),
            ("follow_up", inf),
        ):
            check_number(f"stragglers: reassign: {name}", getattr(self, name), 0.0, most)
        for name in ("helpers", "checks"):
            check_whole(f"stragglers: reassign: {name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """How far a worker is at a time of this worker's timer. `pace`: seconds of a clock at the speed
    of its last chunk.
    """

    progress: float
    timer: float
    pace: float = 0.0

    def ahead(self, own: WorkerProgress) -> float:
        """By how much another worker is expected to be ahead of this one at the end of its clock,
        or now if that has passed.
        """
        end = ceil(self.progress)
        until = max(0.0, self.timer + (end - self.progress) * self.pace - own.timer)
        return end - own.progress - (until / own.pace if own.pace else inf)


@dataclass(frozen=True, slots=True)
class Lend:
    """Lend this share of the work of a clock."""

    to: str
    share: float


@dataclass(frozen=True, slots=True)
class FlexRR:
    """The decisions of one worker; an immutable value. `usual` is its weighted mean time of a
    clock; 0: unknown.

    What others do after a report is expected, until the next one: `heard` has their last reports.
    """

    settings: Reassignment = field(default_factory=Reassignment)
    usual: float = 0.0
    offsets: Mapping[str, float] = field(default_factory=dict)
    heard: Mapping[str, WorkerProgress] = field(default_factory=dict)

    def clock_took(self, seconds: float) -> FlexRR:
        """This worker has finished its part of a clock, after `seconds` of work."""
        return replace(self, usual=(self.usual + seconds) / 2 if self.usual else seconds)

    def other_reported(
        self,
        worker: str,
        progress: float,
        timer: float,
        pace: float,
        own: WorkerProgress,
        *,
        busy: bool = False,
    ) -> tuple[FlexRR, tuple[Lend, ...]]:
        """Compares another worker's report with this one's progress when it arrived; proposes what
        to lend.

        `pace`: seconds of a clock at the speed of the other's last chunk; 0: it reports the end of
        its clock. `busy`: it has been lent work that it has not finished.
        """
        apart = own.timer - timer
        offset = min(apart, self.offsets.get(worker, inf))
        ahead = progress + ((apart - offset) / self.usual if self.usual else 0.0) - own.progress
        policy = replace(self.without(worker), offsets={**self.offsets, worker: offset})

        if pace:
            heard = WorkerProgress(progress, own.timer - (apart - offset), pace)
            policy = replace(policy, heard={**policy.heard, worker: heard})
            ahead = max(ahead, heard.ahead(own))

        asks = ahead > self.settings.trigger and not busy
        return policy, (Lend(worker, self.settings.first),) if asks else ()

    def other_began(self, worker: str) -> tuple[Lend, ...]:
        """Another worker has begun what it was lent: proposes to lend more."""
        return (Lend(worker, self.settings.first * self.settings.follow_up),)

    def went_on(self, own: WorkerProgress, busy: Set[str] = frozenset()) -> tuple[Lend, ...]:
        """This worker has gone on: proposes what to lend to those that are not `busy` with what was
        lent before.
        """
        idle = {name: heard for name, heard in self.heard.items() if name not in busy}
        wanted = [name for name, heard in idle.items() if heard.ahead(own) > self.settings.trigger]
        return tuple(Lend(name, self.settings.first) for name in wanted)

    def without(self, worker: str) -> FlexRR:
        """Expects nothing of a worker until it reports again; one that gives work back is not ahead
        after all.
        """
        if worker not in self.heard:
            return self
        return replace(
            self, heard={name: heard for name, heard in self.heard.items() if name != worker}
        )


def help_groups(workers: Sequence[str], helpers: int) -> dict[str, tuple[str, ...]]:
    """By worker, those that it may help: each has `helpers` others, at distances that double,
    around a circle.

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

    return {
        name: tuple(workers[(at - step) % count] for step in steps)
        for at, name in enumerate(workers)
    }
