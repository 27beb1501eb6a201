from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.nightly.hours import Night
from spotctl.nightly.state_dir import Kept
from spotctl.nightly.steps import CANNOT_GO_ON, Found, Step, next_step
from spotctl.runlog.events import RunBegan, RunEnded
from spotctl.runlog.state import RunState

AT = 1_780_000_000_000_000
TONIGHT = Night(date(2026, 5, 2), AT, AT + 4 * HOUR)
LAST_NIGHT = AT - 24 * HOUR
NOW = AT + HOUR


def run(since: int, ended: str = "", message: str = "") -> RunState:
    end = RunEnded(ended, message, since + HOUR) if ended else None
    return RunState(run="r", began=RunBegan("small", "local", {}, "", since), ended=end)


def kept(begin: int, *, told: bool) -> Kept:
    return Kept(date(2026, 5, 1), begin, begin, told=told)


NOTHING = Found(None, [])
INTERRUPTED = Found(kept(AT, told=False), [run(AT + MINUTE)])


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (NOTHING, Step.LAUNCH),
        (Found(kept(LAST_NIGHT, told=True), [run(LAST_NIGHT, "done")]), Step.LAUNCH),
        # A start that was killed before anything was begun.
        (Found(kept(AT, told=False), []), Step.LAUNCH),
        (Found(kept(AT, told=False), [run(LAST_NIGHT, "done")]), Step.LAUNCH),
        (Found(kept(AT, told=False), [run(AT + MINUTE, "no capacity")]), Step.LAUNCH),
        (Found(kept(AT, told=False), [run(AT, "stopped", CANNOT_GO_ON.message)]), Step.LAUNCH),
        (INTERRUPTED, Step.GO_ON),
        (Found(kept(LAST_NIGHT, told=False), [run(LAST_NIGHT)]), Step.GO_ON),
        # Somebody's own launch that was killed.
        (Found(None, [run(LAST_NIGHT)]), Step.GO_ON),
        (Found(kept(LAST_NIGHT, told=True), [run(LAST_NIGHT + HOUR)]), Step.GO_ON),
        (replace(INTERRUPTED, can_go_on=False), Step.REPLACE),
        (Found(kept(AT, told=False), [run(AT + MINUTE, "done")]), Step.TELL),
        (Found(kept(AT, told=False), [run(AT + MINUTE, "failed")]), Step.TELL),
        (Found(kept(LAST_NIGHT, told=False), [run(LAST_NIGHT, "done")]), Step.TELL),
        (Found(kept(AT, told=True), [run(AT, "done")]), Step.SKIP),
        (Found(kept(AT, told=True), []), Step.SKIP),
    ],
)
def test_what_a_timer_starts(found: Found, step: Step) -> None:
    assert next_step(found, TONIGHT, NOW, scheduled=True) is step


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (NOTHING, Step.MISSED),
        (INTERRUPTED, Step.GIVE_BACK),
        (replace(INTERRUPTED, can_go_on=False), Step.GIVE_BACK),
        (Found(kept(AT, told=False), [run(AT, "done")]), Step.TELL),
        (Found(kept(AT, told=False), [run(AT, "no capacity")]), Step.MISSED),
        (Found(kept(AT, told=True), []), Step.SKIP),
    ],
)
def test_after_the_deadline_nothing_is_begun(found: Found, step: Step) -> None:
    assert next_step(found, TONIGHT, AT + 4 * HOUR, scheduled=True) is step


def test_by_hand_a_night_is_run_again() -> None:
    again = Night(date(2026, 5, 2), NOW, None)
    assert next_step(Found(kept(AT, told=True), [run(AT, "done")]), again, NOW, scheduled=False) is Step.LAUNCH
    assert next_step(INTERRUPTED, again, NOW, scheduled=False) is Step.GO_ON
