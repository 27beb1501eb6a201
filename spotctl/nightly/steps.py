"""What a start of a nightly job has to do, from what it finds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from spotctl.nightly.hours import Night
from spotctl.nightly.state_dir import Kept
from spotctl.runlog.events import RunEnded, StopRequested
from spotctl.runlog.outcomes import NO_CAPACITY, NOT_IN_TIME, STOPPED
from spotctl.runlog.state import RunState

CANNOT_GO_ON = StopRequested(STOPPED, "the computer was restarted, after which a run cannot go on")
TOO_LATE = StopRequested(NOT_IN_TIME, "the deadline came before the job was done")


class Step(Enum):
    """The one thing to do next."""

    LAUNCH = auto()
    GO_ON = auto()
    """An earlier process was killed: its run goes on."""
    REPLACE = auto()
    """It cannot go on: what it holds is given back, and another run begins."""
    GIVE_BACK = auto()
    """There is no time left for it."""
    TELL = auto()
    """A run has ended of which nobody was told."""
    MISSED = auto()
    """The night is over, and nothing was begun."""
    SKIP = auto()
    """This night was run and told of."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a start finds: the last night that is known of, the job's runs, and whether the latest could go on."""

    kept: Kept | None
    runs: Sequence[RunState]
    can_go_on: bool = True

    @property
    def untold(self) -> Kept | None:
        """A night that somebody began and did not finish."""
        return None if self.kept is None or self.kept.told else self.kept

    @property
    def of_night(self) -> list[RunState]:
        """The runs of the last night."""
        return [] if self.kept is None else runs_since(self.runs, self.kept.since)


def runs_since(runs: Sequence[RunState], since: int) -> list[RunState]:
    """Runs that began at a moment (microseconds UTC) or later."""
    return [run for run in runs if run.began is not None and run.began.wall_us >= since]


def next_step(found: Found, night: Night, now: int, *, scheduled: bool) -> Step:
    """What to do now. A timer's start (`scheduled`) runs each night once, and none after its deadline."""
    latest = found.runs[-1] if found.runs else None
    if latest is not None and latest.ended is None:
        if night.is_over(now):
            return Step.GIVE_BACK
        return Step.GO_ON if found.can_go_on else Step.REPLACE
    of_night = found.of_night
    if found.untold and of_night and of_night[-1].ended and not begins_again(of_night[-1].ended):
        return Step.TELL
    if scheduled and found.kept and found.kept.told and found.kept.begin >= night.begin:
        return Step.SKIP
    return Step.MISSED if night.is_over(now) else Step.LAUNCH


def begins_again(ended: RunEnded) -> bool:
    """Whether another run of the same night follows on one that ended so."""
    return ended.outcome == NO_CAPACITY or ended.message == CANNOT_GO_ON.message
