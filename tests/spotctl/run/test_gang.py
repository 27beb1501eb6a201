"""What the nodes of a command do next, from what the log tells and the provider shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.machines.base import Machine, MachineState
from spotctl.run.gang import Ended, Shape, Step, step
from spotctl.run.live_strategy import record_of
from spotctl.runlog import events as ev
from spotctl.runlog.events import Event
from spotctl.runlog.state import RunState, fold
from spotctl.runlog.store import Row
from tests.spotctl.run.worlds import MARKETS, ON_DEMAND, START

PAIR = Shape(2, prepares=False, pause=5 * MINUTE)
PREPARED = replace(PAIR, prepares=True)
NOW = START + HOUR


def state(*events: Event | tuple[Event, int]) -> RunState:
    """The run after events, each at the beginning or at a minute of its own."""
    rows = [(one, 0) if not isinstance(one, tuple) else one for one in events]
    return fold(Row(i + 1, "r", START + minute * MINUTE, event) for i, (event, minute) in enumerate(rows))


def bought(*names: str, intent: int = 1, bid: int | None = 1, reliable: bool = False) -> tuple[Event, ...]:
    order = ev.RentIntended(intent, MARKETS[0], len(names), bid, ON_DEMAND, 4.0, reliable, START + 9 * HOUR)
    granted = ev.Rented(intent, tuple(ev.Granted(name, START) for name in names))
    return (order, granted, *map(ev.MachineRan, names))


def shown(name: str, work: str = "", code: int | None = None) -> Machine:
    return Machine(name, MARKETS[0], 1, MachineState.RUNNING, START, START + 9 * HOUR, {}, work=work, exit_code=code)


BEGAN = ev.WorkBegan(1, ("a", "b"), 20_000)
STOPPED = ev.WorkStopped(1, "b was taken away")
RUNS = (*bought("a", "b"), BEGAN)


def at_work(*codes: int | None) -> list[Machine]:
    return [shown(name, "run-1", code) for name, code in zip("ab", codes, strict=True)]


@pytest.mark.parametrize(
    ("machines", "shape", "expected"),
    [
        ([shown("a"), shown("b")], PAIR, Step(begin=("a", "b"))),
        ([shown("a")], PAIR, Step()),
        ([shown("a"), shown("b")], PREPARED, Step()),
        ([shown("a", "prepare", 0), shown("b", "prepare")], PREPARED, Step()),
        ([shown("a", "prepare", 0), shown("b", "prepare", 0)], PREPARED, Step(begin=("a", "b"))),
        (
            [shown("a", "prepare", 0), shown("b", "prepare", 3)],
            PREPARED,
            Step(unprepared=(Ended("b", 3),), useless=("b",)),
        ),
    ],
)
def test_nodes_begin_when_all_are_there_and_prepared(machines: Sequence[Machine], shape: Shape, expected: Step) -> None:
    assert step(state(*bought("a", "b")), machines, shape, START + MINUTE) == expected


def test_a_part_of_a_gang_is_not_kept_waiting_and_machines_beside_are_no_nodes() -> None:
    alone = state(*bought("a"), *bought("head", intent=2, bid=None, reliable=True))
    here = [shown("a"), shown("head")]
    assert step(alone, here, PAIR, START + 5 * MINUTE) == Step()
    assert step(alone, here, PAIR, START + 5 * MINUTE + 1) == Step(useless=("a",))
    order = ev.RentIntended(3, MARKETS[1], 1, 1, ON_DEMAND, 4.0, False, START + 9 * HOUR)
    asked = state(*bought("a"), order)
    assert step(asked, here, PAIR, NOW) == Step(), "an order is open that may bring the other"


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((None, None), Step()),
        ((0, None), Step()),
        ((0, 0), Step(done=True)),
        ((None, 9), Step(failed=Ended("b", 9))),
        ((75, 1), Step(stop="a asked to be moved", moved=True, useless=("a",))),
    ],
)
def test_how_an_attempt_goes(codes: tuple[int | None, int | None], expected: Step) -> None:
    assert step(state(*RUNS), at_work(*codes), PAIR, NOW) == expected


def test_who_does_not_run_it_yet_is_told_to() -> None:
    assert step(state(*RUNS), [shown("a", "run-1"), shown("b", "prepare", 0)], PAIR, NOW) == Step(run=("b",))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (ev.MachineWarned("b", NOW, "eviction", "x"), "b will be taken away"),
        (ev.MachineEnded("b", NOW, "evicted"), "b was taken away"),
        (ev.MachineEnded("b", NOW, "failed"), "b is gone: failed"),
        (ev.ReturnIntended(9, ("b",), "x"), "b is given back"),
    ],
)
def test_one_that_leaves_stops_all(event: Event, why: str) -> None:
    assert step(state(*RUNS, event), at_work(None, 1), PAIR, NOW) == Step(stop=why)


def test_the_others_are_told_to_end_and_nobody_goes_on_before_all_have() -> None:
    known = state(*RUNS, ev.MachineWarned("b", NOW, "eviction", "x"), STOPPED, *bought("c", intent=2))
    mate, new = shown("a", "run-1"), shown("c")
    assert step(known, [mate, shown("b", "run-1"), new], PAIR, NOW - 55 * MINUTE) == Step(rest=("a",))
    resting = shown("a", "rest-1")
    assert step(known, [resting, shown("b", "run-1", 75), new], PAIR, NOW - 55 * MINUTE) == Step()
    rested = shown("a", "rest-1", 0)
    assert step(known, [rested, shown("b", "run-1"), new], PAIR, NOW - 55 * MINUTE) == Step()
    assert step(known, [rested, shown("b", "run-1", 75), new], PAIR, NOW) == Step(begin=("a", "c"))
    # A mate that broke down when it lost the other is as good as new.
    assert step(known, [shown("a", "run-1", 1), shown("b", "run-1", 75), new], PAIR, NOW) == Step(begin=("a", "c"))
    assert step(known, [], PAIR, NOW) == Step(), "the provider says nothing now"


def test_machines_that_nobody_needs_are_returned_unless_they_are_to_take_over() -> None:
    beside = state(*RUNS, *bought("c", intent=2))
    here = [*at_work(None, None), shown("c")]
    assert step(beside, here, PAIR, NOW) == Step(useless=("c",))
    leaving = state(*RUNS, *bought("c", intent=2), ev.LeavePlanned(1, NOW + MINUTE))
    assert step(leaving, here, PAIR, NOW) == Step()


def carried(attempt: int, number: int) -> Event:
    return ev.Checkpointed(attempt, 0, number, 10, 1.0, 30.0)


def test_what_checkpoints_hold_is_safe_and_the_rest_is_done_again() -> None:
    first = state(*bought("a", "b"), (BEGAN, 10), (carried(1, 1), 30))
    assert (first.work.safe, first.work.done(START + 40 * MINUTE)) == (20 * MINUTE, 30 * MINUTE)
    stopped = [*bought("a", "b"), (BEGAN, 10), (carried(1, 1), 30), (STOPPED, 40)]
    lost = state(*stopped).work
    assert (lost.runs, lost.safe, lost.done(NOW), lost.spells[-1].kept) == (
        False,
        20 * MINUTE,
        20 * MINUTE,
        20 * MINUTE,
    )
    # What was saved because of the stop comes a moment after it.
    saved = state(*stopped, (carried(1, 2), 42)).work
    assert (saved.safe, saved.spells[-1].kept) == (30 * MINUTE, 30 * MINUTE)
    again = state(*stopped, (ev.WorkBegan(2, ("a", "c"), 20_000), 50)).work
    assert (again.base, again.lost, again.done(NOW)) == (20 * MINUTE, 10 * MINUTE, 30 * MINUTE)


def test_the_record_counts_what_was_taken_paid_and_kept_lately_and_refuges_after_it() -> None:
    run = state(
        *bought("a", "b"),
        (BEGAN, 10),
        (carried(1, 1), 30),
        (STOPPED, 40),
        (ev.MachineEnded("b", START + 40 * MINUTE, "evicted"), 40),
        (ev.MachineEnded("a", START + 50 * MINUTE, "returned"), 50),
    )
    record = record_of(run, NOW)
    assert (record.taken, record.refuges) == ((START + 40 * MINUTE,), ())
    assert (record.paid, record.lasting) == (50 * MINUTE, 20 * MINUTE)
    assert record_of(run, START + 2 * HOUR + 45 * MINUTE).paid == 5 * MINUTE
    chosen = fold([Row(i + 91, "r", NOW, event) for i, event in enumerate(bought("e", intent=6, bid=None))], run)
    assert record_of(chosen, NOW).refuges == (), "on demand before anything was taken is no refuge"
    later = ev.Rented(7, (ev.Granted("d", START + 55 * MINUTE),))
    order = ev.RentIntended(7, MARKETS[0], 1, None, ON_DEMAND, 4.0, False, START + 9 * HOUR)
    fled = fold([Row(91, "r", NOW, order), Row(92, "r", NOW, later)], run)
    assert record_of(fled, NOW).refuges == (START + 55 * MINUTE,)
