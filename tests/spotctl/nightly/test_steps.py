from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.state import RunState
from spotctl.nightly.hours import Night
from spotctl.nightly.state_dir import NightRecord
from spotctl.nightly.steps import CANNOT_RESUME, NightState, NightStep, next_step

AT = 1_780_000_000_000_000
TONIGHT = Night(date(2026, 5, 2), AT, AT + 4 * HOUR)
LAST_NIGHT = AT - 24 * HOUR
NOW = AT + HOUR


def run(since: int, ended: str = "", message: str = "") -> RunState:
    end = RunEnded(ended, message, since + HOUR) if ended else None
    return RunState(run="r", began=RunBegan("small", "local", {}, "", since), ended=end)


def record(begin: int, *, reported: bool) -> NightRecord:
    return NightRecord(date(2026, 5, 1), begin, begin, reported=reported)


NOTHING = NightState(None, [])
INTERRUPTED = NightState(record(AT, reported=False), [run(AT + MINUTE)])


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (NOTHING, NightStep.LAUNCH),
        (
            NightState(record(LAST_NIGHT, reported=True), [run(LAST_NIGHT, "done")]),
            NightStep.LAUNCH,
        ),
        # A start that was killed before anything was launched.
        (NightState(record(AT, reported=False), []), NightStep.LAUNCH),
        (NightState(record(AT, reported=False), [run(LAST_NIGHT, "done")]), NightStep.LAUNCH),
        (
            NightState(record(AT, reported=False), [run(AT + MINUTE, "no capacity")]),
            NightStep.LAUNCH,
        ),
        (
            NightState(record(AT, reported=False), [run(AT, "stopped", CANNOT_RESUME.message)]),
            NightStep.LAUNCH,
        ),
        (INTERRUPTED, NightStep.RESUME),
        (NightState(record(LAST_NIGHT, reported=False), [run(LAST_NIGHT)]), NightStep.RESUME),
        # A launch by hand that was killed.
        (NightState(None, [run(LAST_NIGHT)]), NightStep.RESUME),
        (NightState(record(LAST_NIGHT, reported=True), [run(LAST_NIGHT + HOUR)]), NightStep.RESUME),
        (replace(INTERRUPTED, can_resume=False), NightStep.REPLACE),
        (NightState(record(AT, reported=False), [run(AT + MINUTE, "done")]), NightStep.REPORT),
        (NightState(record(AT, reported=False), [run(AT + MINUTE, "failed")]), NightStep.REPORT),
        (
            NightState(record(LAST_NIGHT, reported=False), [run(LAST_NIGHT, "done")]),
            NightStep.REPORT,
        ),
        (NightState(record(AT, reported=True), [run(AT, "done")]), NightStep.SKIP),
        (NightState(record(AT, reported=True), []), NightStep.SKIP),
    ],
)
def test_steps_of_a_timer(state: NightState, step: NightStep) -> None:
    assert next_step(state, TONIGHT, NOW, scheduled=True) is step


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (NOTHING, NightStep.MISSED),
        (INTERRUPTED, NightStep.CLOSE),
        (replace(INTERRUPTED, can_resume=False), NightStep.CLOSE),
        (NightState(record(AT, reported=False), [run(AT, "done")]), NightStep.REPORT),
        (NightState(record(AT, reported=False), [run(AT, "no capacity")]), NightStep.MISSED),
        (NightState(record(AT, reported=True), []), NightStep.SKIP),
    ],
)
def test_after_the_deadline_nothing_is_launched(state: NightState, step: NightStep) -> None:
    assert next_step(state, TONIGHT, AT + 4 * HOUR, scheduled=True) is step


def test_a_start_by_hand_runs_again() -> None:
    again = Night(date(2026, 5, 2), NOW, None)
    assert (
        next_step(
            NightState(record(AT, reported=True), [run(AT, "done")]), again, NOW, scheduled=False
        )
        is NightStep.LAUNCH
    )
    assert next_step(INTERRUPTED, again, NOW, scheduled=False) is NightStep.RESUME
