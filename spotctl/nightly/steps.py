"""Decides what a start of a nightly job does, from the state that it finds. Pure."""

from collections.abc import Sequence
from enum import Enum, auto

from spotctl.log.events import StopRequested
from spotctl.log.outcomes import NO_CAPACITY, NOT_IN_TIME, STOPPED
from spotctl.log.state import RunState
from spotctl.nightly.hours import Night
from spotctl.nightly.state_dir import NightRecord

CANNOT_RESUME = StopRequested(STOPPED, "the computer was restarted, so the run cannot be resumed")
TOO_LATE = StopRequested(NOT_IN_TIME, "the deadline came before the job was done")


class NightStep(Enum):
    """The action of a start."""

    LAUNCH = auto()
    RESUME = auto()
    """The process of the run was killed: resume the run."""
    REPLACE = auto()
    """The run cannot be resumed: return its machines and launch another."""
    CLOSE = auto()
    """It is too late to resume the run: return its machines."""
    REPORT = auto()
    """A run has ended, but its message was not sent."""
    MISSED = auto()
    """The night is over, and nothing was started."""
    SKIP = auto()
    """This night's run was already reported."""


def runs_since(runs: Sequence[RunState], since: int) -> list[RunState]:
    """The runs that began at `since` (microseconds UTC) or later."""
    return [run for run in runs if run.began is not None and run.began.wall_us >= since]


def next_step(
    last: NightRecord | None,
    runs: Sequence[RunState],
    night: Night,
    now: int,
    *,
    scheduled: bool,
    can_resume: bool = True,
) -> NightStep:
    """The action to take now, given the `last` recorded night, the job's runs, and whether the
    latest of them can be resumed. Starts by a timer (`scheduled`) run each night once, and never
    after its deadline.
    """
    latest = runs[-1] if runs else None
    if latest is not None and latest.ended is None:
        if night.is_over(now):
            return NightStep.CLOSE
        return NightStep.RESUME if can_resume else NightStep.REPLACE

    is_reported = last is not None and last.reported
    of_night = [] if last is None else runs_since(runs, last.since)
    if not is_reported and of_night and (ended := of_night[-1].ended):
        # After these ends, another run follows in the same night.
        is_retried = ended.outcome == NO_CAPACITY or ended.message == CANNOT_RESUME.message
        if not is_retried:
            return NightStep.REPORT

    if scheduled and last is not None and is_reported and last.begin >= night.begin:
        return NightStep.SKIP
    return NightStep.MISSED if night.is_over(now) else NightStep.LAUNCH
