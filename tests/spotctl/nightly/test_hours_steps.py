from __future__ import annotations

from datetime import date

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.state import RunState
from spotctl.nightly.hours import CANNOT_RESUME, Night, NightStep
from spotctl.nightly.night_runner import next_step
from spotctl.nightly.state_dir import NightRecord

AT = 1_780_000_000_000_000
TONIGHT = Night(date(2026, 5, 2), AT, AT + 4 * HOUR)
LAST_NIGHT = AT - 24 * HOUR
NOW = AT + HOUR


def run(since: int, ended: str = "", message: str = "") -> RunState:
    end = RunEnded(ended, message, since + HOUR) if ended else None
    return RunState(run="r", began=RunBegan("small", "local", {}, "", since), ended=end)


def record(begin: int, *, reported: bool) -> NightRecord:
    return NightRecord(date(2026, 5, 1), begin, begin, reported=reported)


State = tuple[NightRecord | None, list[RunState], bool]
"""The last recorded night, the job's runs, and whether the latest can be resumed."""

NOTHING: State = (None, [], True)
INTERRUPTED: State = (record(AT, reported=False), [run(AT + MINUTE)], True)
NOT_RESUMABLE: State = (*INTERRUPTED[:2], False)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (NOTHING, NightStep.LAUNCH),
        (
            (record(LAST_NIGHT, reported=True), [run(LAST_NIGHT, "done")], True),
            NightStep.LAUNCH,
        ),
        # A start that was killed before anything was launched.
        ((record(AT, reported=False), [], True), NightStep.LAUNCH),
        ((record(AT, reported=False), [run(LAST_NIGHT, "done")], True), NightStep.LAUNCH),
        (
            (record(AT, reported=False), [run(AT + MINUTE, "no capacity")], True),
            NightStep.LAUNCH,
        ),
        (
            (record(AT, reported=False), [run(AT, "stopped", CANNOT_RESUME.message)], True),
            NightStep.LAUNCH,
        ),
        (INTERRUPTED, NightStep.RESUME),
        ((record(LAST_NIGHT, reported=False), [run(LAST_NIGHT)], True), NightStep.RESUME),
        # A launch by hand that was killed.
        ((None, [run(LAST_NIGHT)], True), NightStep.RESUME),
        ((record(LAST_NIGHT, reported=True), [run(LAST_NIGHT + HOUR)], True), NightStep.RESUME),
        (NOT_RESUMABLE, NightStep.REPLACE),
        ((record(AT, reported=False), [run(AT + MINUTE, "done")], True), NightStep.REPORT),
        ((record(AT, reported=False), [run(AT + MINUTE, "failed")], True), NightStep.REPORT),
        (
            (record(LAST_NIGHT, reported=False), [run(LAST_NIGHT, "done")], True),
            NightStep.REPORT,
        ),
        ((record(AT, reported=True), [run(AT, "done")], True), NightStep.SKIP),
        ((record(AT, reported=True), [], True), NightStep.SKIP),
    ],
)
def test_steps_of_a_timer(state: State, step: NightStep) -> None:
    assert step_of(state, TONIGHT, NOW, scheduled=True) is step


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (NOTHING, NightStep.MISSED),
        (INTERRUPTED, NightStep.CLOSE),
        (NOT_RESUMABLE, NightStep.CLOSE),
        ((record(AT, reported=False), [run(AT, "done")], True), NightStep.REPORT),
        ((record(AT, reported=False), [run(AT, "no capacity")], True), NightStep.MISSED),
        ((record(AT, reported=True), [], True), NightStep.SKIP),
    ],
)
def test_after_the_deadline_nothing_is_launched(state: State, step: NightStep) -> None:
    assert step_of(state, TONIGHT, AT + 4 * HOUR, scheduled=True) is step


def test_a_start_by_hand_runs_again() -> None:
    again = Night(date(2026, 5, 2), NOW, None)
    done = (record(AT, reported=True), [run(AT, "done")], True)
    assert step_of(done, again, NOW, scheduled=False) is NightStep.LAUNCH
    assert step_of(INTERRUPTED, again, NOW, scheduled=False) is NightStep.RESUME


def step_of(state: State, night: Night, now: int, *, scheduled: bool) -> NightStep:
    last, runs, can_resume = state
    return next_step(last, runs, night, now, scheduled=scheduled, can_resume=can_resume)
