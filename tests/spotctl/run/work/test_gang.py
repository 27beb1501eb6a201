"""What the nodes of a command do next, from the log and the provider's list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.provider import Machine, MachineState
from spotctl.log import events as ev
from spotctl.log.events import Event
from spotctl.log.folding import fold
from spotctl.log.state import LogRow, RunState
from spotctl.run.turn.live_strategy import record_of
from spotctl.run.work.gang import GangShape, GangStep, free_since, next_step, node_variables
from tests.spotctl.run.worlds import MARKETS, ON_DEMAND, START

PAIR = GangShape(2, 2, prepares=False, pause=5 * MINUTE)
PREPARED = replace(PAIR, prepares=True)
NOW = START + HOUR


def state(*events: Event | tuple[Event, int]) -> RunState:
    """The run after events, at the start or at a given minute."""
    rows = [(one, 0) if not isinstance(one, tuple) else one for one in events]
    return fold(
        LogRow(i + 1, "r", START + minute * MINUTE, event) for i, (event, minute) in enumerate(rows)
    )


def bought(
    *names: str, intent: int = 1, bid: int | None = 1, reliable: bool = False
) -> tuple[Event, ...]:
    order = ev.RentIntended(
        intent, MARKETS[0], len(names), bid, ON_DEMAND, 4.0, reliable, START + 9 * HOUR
    )
    granted = ev.Rented(intent, tuple(ev.Granted(name, START) for name in names))
    return (order, granted, *map(ev.MachineRan, names))


def shown(name: str, work: str = "", code: int | None = None) -> Machine:
    return Machine(name, MARKETS[0], 1, MachineState.RUNNING, START, {}, work=work, exit_code=code)


BEGAN = ev.AttemptBegan(1, ("a", "b"), 20_000)
STOPPED = ev.AttemptStopped(1, "b was evicted")
RUNS = (*bought("a", "b"), BEGAN)


def at_work(*codes: int | None) -> list[Machine]:
    return [shown(name, "run-1", code) for name, code in zip("ab", codes, strict=True)]


@pytest.mark.parametrize(
    ("machines", "shape", "expected"),
    [
        ([shown("a"), shown("b")], PAIR, GangStep(begin=("a", "b"))),
        ([shown("a")], PAIR, GangStep()),
        ([shown("a"), shown("b")], PREPARED, GangStep()),
        ([shown("a", "prepare", 0), shown("b", "prepare")], PREPARED, GangStep()),
        (
            [shown("a", "prepare", 0), shown("b", "prepare", 0)],
            PREPARED,
            GangStep(begin=("a", "b")),
        ),
        (
            [shown("a", "prepare", 0), shown("b", "prepare", 3)],
            PREPARED,
            GangStep(unprepared={"b": 3}, idle=("b",)),
        ),
    ],
)
def test_an_attempt_begins_when_all_nodes_are_ready(
    machines: Sequence[Machine], shape: GangShape, expected: GangStep
) -> None:
    assert next_step(state(*bought("a", "b")), machines, shape, START + MINUTE) == expected


def test_an_incomplete_gang_is_returned_after_a_while_and_reliable_machines_are_no_nodes() -> None:
    alone = state(*bought("a"), *bought("head", intent=2, bid=None, reliable=True))
    here = [shown("a"), shown("head")]
    assert next_step(alone, here, PAIR, START + 5 * MINUTE) == GangStep()
    assert next_step(alone, here, PAIR, START + 5 * MINUTE + 1) == GangStep(idle=("a",))
    order = ev.RentIntended(3, MARKETS[1], 1, 1, ON_DEMAND, 4.0, False, START + 9 * HOUR)
    ordered = state(*bought("a"), order)
    assert next_step(ordered, here, PAIR, NOW) == GangStep(), (
        "an order is open that may bring the other"
    )


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((None, None), GangStep()),
        ((0, None), GangStep()),
        ((0, 0), GangStep(done=True)),
        ((None, 9), GangStep(failed=("b", 9))),
        ((75, 1), GangStep(stop="a requested a move", moved=True, idle=("a",))),
    ],
)
def test_how_an_attempt_goes(codes: tuple[int | None, int | None], expected: GangStep) -> None:
    assert next_step(state(*RUNS), at_work(*codes), PAIR, NOW) == expected


def test_a_node_without_the_command_is_assigned_it() -> None:
    assert next_step(
        state(*RUNS), [shown("a", "run-1"), shown("b", "prepare", 0)], PAIR, NOW
    ) == GangStep(run=("b",))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (ev.MachineWarned("b", NOW, "eviction", "x"), "b will be evicted"),
        (ev.MachineEnded("b", NOW, "evicted"), "b was evicted"),
        (ev.MachineEnded("b", NOW, "failed"), "b is gone: failed"),
        (ev.ReturnIntended(9, ("b",), "x"), "b is being returned"),
    ],
)
def test_a_node_that_leaves_stops_all(event: Event, why: str) -> None:
    assert next_step(state(*RUNS, event), at_work(None, 1), PAIR, NOW) == GangStep(stop=why)


def test_a_command_that_has_ended_is_done_even_if_its_machines_are_about_to_leave() -> None:
    warned = state(*RUNS, ev.MachineWarned("b", NOW, "eviction", "x"))
    assert next_step(warned, at_work(0, 0), PAIR, NOW) == GangStep(done=True)
    assert next_step(warned, at_work(None, 0), PAIR, NOW) == GangStep(stop="b will be evicted")


def test_all_nodes_stop_before_a_new_attempt_begins() -> None:
    known = state(
        *RUNS, ev.MachineWarned("b", NOW, "eviction", "x"), STOPPED, *bought("c", intent=2)
    )
    mate, new = shown("a", "run-1"), shown("c")
    assert next_step(known, [mate, shown("b", "run-1"), new], PAIR, NOW - 55 * MINUTE) == GangStep(
        rest=("a",)
    )
    resting = shown("a", "rest-1")
    assert (
        next_step(known, [resting, shown("b", "run-1", 75), new], PAIR, NOW - 55 * MINUTE)
        == GangStep()
    )
    rested = shown("a", "rest-1", 0)
    assert (
        next_step(known, [rested, shown("b", "run-1"), new], PAIR, NOW - 55 * MINUTE) == GangStep()
    )
    assert next_step(known, [rested, shown("b", "run-1", 75), new], PAIR, NOW) == GangStep(
        begin=("a", "c")
    )
    # A node that failed because it lost its peer is free again.
    failed = shown("a", "run-1", 1)
    assert next_step(known, [failed, shown("b", "run-1", 75), new], PAIR, NOW) == GangStep(
        begin=("a", "c")
    )
    assert next_step(known, [], PAIR, NOW) == GangStep(), "the provider says nothing now"


def test_surplus_machines_are_returned_unless_they_replace_others() -> None:
    beside = state(*RUNS, *bought("c", intent=2))
    here = [*at_work(None, None), shown("c")]
    assert next_step(beside, here, PAIR, NOW) == GangStep(idle=("c",))
    leaving = state(*RUNS, *bought("c", intent=2), ev.ReturnScheduled(1, NOW + MINUTE))
    assert next_step(leaving, here, PAIR, NOW) == GangStep()


ELASTIC = GangShape(2, 3, prepares=False, pause=5 * MINUTE, restart=4 * MINUTE)
THREE = ev.AttemptBegan(1, ("a", "b", "c"), 20_000)
TWO = ev.AttemptBegan(2, ("a", "b"), 20_000, 2 / 3)


def test_a_range_of_nodes_starts_with_fewer_once_the_others_are_late() -> None:
    late = state(*bought("a", "b", "c")[:-1])
    here = [shown("a"), shown("b")]
    assert next_step(late, here, ELASTIC, START + 5 * MINUTE) == GangStep(), "c is on its way"
    assert next_step(late, here, ELASTIC, START + 5 * MINUTE + 1) == GangStep(begin=("a", "b"))
    refused = state(*bought("a", "b"))
    assert next_step(refused, here, ELASTIC, START) == GangStep(begin=("a", "b")), (
        "no other is on its way"
    )
    alone = state(*bought("a"))
    assert next_step(alone, here[:1], ELASTIC, START + 6 * MINUTE) == GangStep(idle=("a",)), (
        "too few"
    )


def test_after_an_eviction_the_machines_that_remain_start_again_at_once() -> None:
    gone = [
        *bought("a", "b", "c"),
        THREE,
        ev.MachineEnded("c", NOW, "evicted"),
        ev.AttemptStopped(1, "c was evicted"),
    ]
    lost = state(*gone)
    saving = [shown("a", "run-1"), shown("b", "rest-1")]
    assert next_step(lost, saving, ELASTIC, START) == GangStep(rest=("a",))
    rested = [shown("a", "rest-1", 0), shown("b", "run-1", 1)]
    assert next_step(lost, rested, ELASTIC, START) == GangStep(begin=("a", "b"))
    assert next_step(lost, rested, replace(ELASTIC, least=3), START) == GangStep(), (
        "a fixed number waits for the third"
    )
    coming = state(*gone, ev.MachineEnded("b", NOW, "evicted"), *bought("d", "e", intent=2)[:-1])
    remain = [shown("a", "rest-1", 0), shown("d"), shown("e")]
    assert next_step(coming, remain, ELASTIC, START) == GangStep(), (
        "too few remain, so the others are waited for"
    )


def test_machines_that_were_prepared_for_long_wait_for_the_others() -> None:
    known, shape = state(*bought("a", "b", "c")), replace(ELASTIC, prepares=True)
    steps = []
    for minute in (20, 24, 26):
        here = [shown("a", "prepare", 0), shown("b", "prepare", 0), shown("c", "prepare")]
        now = START + minute * MINUTE
        shape = replace(shape, free=free_since(here, shape, now))
        steps.append(next_step(known, here, shape, now))
    assert steps == [GangStep(), GangStep(), GangStep(begin=("a", "b"))], (
        "five minutes after the second was prepared"
    )


def test_a_gang_grows_after_a_checkpoint_or_once_waiting_has_cost_as_much_as_a_restart() -> None:
    shrunk = [
        *bought("a", "b"),
        THREE,
        ev.AttemptStopped(1, "c was evicted"),
        (TWO, 10),
        *bought("d", intent=2),
    ]
    here = [shown("a", "run-2"), shown("b", "run-2"), shown("d")]

    def at(
        minute: int, *more: Event | tuple[Event, int], machines: Sequence[Machine] = here
    ) -> GangStep:
        return next_step(state(*shrunk, *more), machines, ELASTIC, START + minute * MINUTE)

    saved = (carried(2, 1), 12)
    assert at(13, (carried(1, 1), 9)) == GangStep(), "a checkpoint of the attempt before"
    assert at(13, saved) == GangStep(
        stop="grows from 2 to 3 nodes: a checkpoint has just been stored"
    )
    # One machine waits while a restart would cost two of them 4 minutes each.
    assert at(17) == GangStep()
    waited = "the new ones have waited for as long as the restart costs the others"
    assert at(18) == GangStep(stop=f"grows from 2 to 3 nodes: {waited}")
    assert at(18, machines=[shown("a", "run-2", 0), *here[1:]]) == GangStep(), (
        "it is about to be done"
    )
    assert at(18, machines=here[:2]) == GangStep(), "the new machine does not answer"
    beside = state(*shrunk, *bought("e", intent=3))
    assert next_step(beside, [*here, shown("e")], ELASTIC, START + 11 * MINUTE) == GangStep(
        idle=("e",)
    )
    order = ev.RentIntended(4, MARKETS[1], 1, 1, ON_DEMAND, 4.0, False, START + 9 * HOUR)
    elsewhere = state(*bought("a", "b"), (TWO, 10), order, ev.Rented(4, (ev.Granted("f", START),)))
    assert next_step(elsewhere, [*here[:2], shown("f")], ELASTIC, NOW) == GangStep(idle=("f",)), (
        "another market"
    )


def test_work_counts_by_the_nodes_that_do_it() -> None:
    shrunk = [
        *bought("a", "b", "c"),
        (THREE, 0),
        (carried(1, 1), 30),
        (ev.AttemptStopped(1, "c was evicted"), 40),
    ]
    work = state(*shrunk, (TWO, 40)).work
    assert work.done(START + 70 * MINUTE) == 50 * MINUTE, (
        "30 minutes on two of three nodes are 20 on all"
    )
    assert work.redone(NOW) == (ev.Stretch(START + 40 * MINUTE, START + 55 * MINUTE),), (
        "10 minutes take 15 on two"
    )
    kept = state(*shrunk, (TWO, 40), (carried(2, 2), 70), (ev.AttemptStopped(2, "grows"), 76)).work
    assert (kept.safe, kept.spells[-1].worked, kept.spells[-1].lasting) == (
        50 * MINUTE,
        24 * MINUTE,
        30 * MINUTE,
    )


def carried(attempt: int, number: int) -> Event:
    return ev.Checkpointed(attempt, 0, number, 10, 1.0, 30.0)


def test_work_after_the_newest_checkpoint_is_done_again() -> None:
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
    # A checkpoint that the stop caused arrives a moment after it.
    saved = state(*stopped, (carried(1, 2), 42)).work
    assert (saved.safe, saved.spells[-1].kept) == (30 * MINUTE, 30 * MINUTE)
    again = state(*stopped, (ev.AttemptBegan(2, ("a", "c"), 20_000), 50)).work
    assert (again.base, again.lost, again.done(NOW)) == (20 * MINUTE, 10 * MINUTE, 30 * MINUTE)


def test_the_record_counts_what_was_taken_paid_and_kept_lately_and_fallbacks_after_it() -> None:
    run = state(
        *bought("a", "b"),
        (BEGAN, 10),
        (carried(1, 1), 30),
        (STOPPED, 40),
        (ev.MachineEnded("b", START + 40 * MINUTE, "evicted"), 40),
        (ev.MachineEnded("a", START + 50 * MINUTE, "returned"), 50),
    )
    record = record_of(run, NOW)
    assert (record.taken, record.fallbacks) == ((START + 40 * MINUTE,), ())
    assert (record.paid, record.lasting) == (50 * MINUTE, 20 * MINUTE)
    assert record_of(run, START + 2 * HOUR + 45 * MINUTE).paid == 5 * MINUTE
    chosen = fold(
        [
            LogRow(i + 91, "r", NOW, event)
            for i, event in enumerate(bought("e", intent=6, bid=None))
        ],
        run,
    )
    assert record_of(chosen, NOW).fallbacks == (), (
        "on demand before anything was taken is no fallback"
    )
    later = ev.Rented(7, (ev.Granted("d", START + 55 * MINUTE),))
    order = ev.RentIntended(7, MARKETS[0], 1, None, ON_DEMAND, 4.0, False, START + 9 * HOUR)
    fled = fold([LogRow(91, "r", NOW, order), LogRow(92, "r", NOW, later)], run)
    assert record_of(fled, NOW).fallbacks == (START + 55 * MINUTE,)


def test_the_variables_of_torchrun_are_set_all_or_none() -> None:
    torchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
    alone = node_variables(0, ["10.0.0.1"], 29500, may_be_several=False)
    assert not torchrun & alone.keys()
    second = node_variables(1, ["10.0.0.1", "10.0.0.2"], 29500, may_be_several=True)
    values = [second[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    assert values == ["1", "2", "0", "1"]
    assert (second["MASTER_ADDR"], second["MASTER_PORT"]) == ("10.0.0.1", "29500")
