"""How others follow a run: each turn, each alarm once, and what its machines wait for."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import never, unheard
from spotctl.log.events import FINISH, Alarm, RunEnded
from spotctl.log.state import RunState
from spotctl.run.turn.service import Runner

WAIT_SECONDS = 15.0
"""How often a run says what its machines wait for before they work: the progress of what is sent to
them."""

RunEnd = tuple[RunState, RunEnded]
"""The last state of a run, and its last event."""


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Callbacks: `on_turn` gets the state after each turn of the loop, `on_end` the end of the run.

    `on_alarm` is called once for each thing that the user may want to change: a budget that is not
    expected to last, or a login that has expired. `on_remark` gets the name of a job, and a line
    about it that is not in the log. `is_stopped` says whether the user has asked to stop
    everything.
    """

    on_turn: Callable[[RunState], None] = unheard
    on_end: Callable[[JobSpec, RunState, RunEnded], None] = unheard
    on_alarm: Callable[[JobSpec, RunState, Alarm], None] = unheard
    on_remark: Callable[[str, str], None] = unheard
    is_stopped: Callable[[], bool] = never


def turn_reports(spec: JobSpec, runner: Runner, observer: RunObserver) -> Callable[[], None]:
    """Reports each turn; each alarm once, unless an earlier process reported it; and what machines
    wait for until they work, now and then, if there is something new to say."""
    reported = set(_alarms(runner.state))
    due: float | None = None
    said = ""

    def report() -> None:
        nonlocal due, said
        state = runner.state
        observer.on_turn(state)
        starting, now = runner.starting, time.monotonic()

        if not starting:
            due = None
        elif due is None:
            due = now + WAIT_SECONDS
        elif now >= due and starting != said:
            due, said = now + WAIT_SECONDS, starting
            observer.on_remark(spec.name, starting)

        for alarm in _alarms(state):
            if alarm not in reported:
                reported.add(alarm)
                observer.on_alarm(spec, state, alarm)

    return report


def _alarms(state: RunState) -> list[Alarm]:
    short = state.over_budget.get(FINISH)
    return [alarm for alarm in (short, state.login) if alarm is not None]
