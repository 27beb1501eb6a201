"""What is shown of a run, without a terminal."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pricing_data.units import MINUTE
from spotctl.runlog import events as ev
from spotctl.show.top import views
from spotctl.show.top.snapshot import Money, Shown, answer, shown
from spotctl.show.top.timeline import MOST_TOLD, Step, Timeline, follow
from tests.spotctl.show.top.runs import CALM, WILD, at, came, order, prices, rows, story

NANO_SECONDS = 3600 * 10**9


def seen(minutes: float = 10, events: int | None = None) -> Shown:
    past = follow(Timeline(), rows(story()[:events]))
    return shown(past, "running", at(minutes), Money(3 * NANO_SECONDS, 12 * NANO_SECONDS, 6 * NANO_SECONDS), 50, prices)


def text(what: object, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_footprint_is_how_many_machines_there_were() -> None:
    steps = follow(Timeline(), rows(story())).footprint
    assert steps == (
        Step(at(0), 1, 0),
        Step(at(1), 1, 3),
        Step(at(6), 1, 5),
        *(Step(at(7), 1, left) for left in (4, 3, 2)),
        Step(at(9), 1, 1),
    )


def test_what_is_written_down_late_does_not_turn_time_back() -> None:
    later = [*story()[:7], (4.0, ev.MachineEnded("a", at(3), "failed")), (4.0, came(2, 2, "found"))]
    assert [step.at for step in follow(Timeline(), rows(later)).footprint] == [at(0), at(1), at(3), at(3)]


def test_what_happened_is_told_once_for_machines_that_go_together() -> None:
    assert [str(told) for told in follow(Timeline(), rows(story())).told] == [
        "the run begins, on local",
        f"rented 1 of {CALM} on demand",
        f"rented 3 of {WILD} for at most $0.0600",
        f"3 of {WILD} will be taken away",
        f"{CALM} refused: no capacity",
        f"rented 2 of {CALM} for at most $0.0950",
        f"3 of {WILD} evicted",
        f"1 of {CALM} evicted without a warning",
    ]


@given(st.lists(st.integers(0, len(story())), max_size=3))
def test_it_does_not_matter_how_often_one_looks(cuts: list[int]) -> None:
    whole, edges = rows(story()), [0, *sorted(cuts), len(story())]
    past = Timeline()
    for begin, end in pairwise(edges):
        past = follow(past, whole[begin:end])
    assert past == follow(Timeline(), whole)


def test_those_that_go_together_are_one_line_though_something_came_between() -> None:
    later = [*story(), (9.0, ev.RunResumed(0)), (9.0, ev.MachineEnded("e", at(9), "evicted"))]
    assert [str(told) for told in follow(Timeline(), rows(later)).told][-2:] == [
        f"2 of {CALM} evicted without a warning",
        "another process goes on with the run",
    ]


def test_a_machine_that_goes_otherwise_needs_no_warning() -> None:
    """And who is warned of another moment is warned of the same end."""
    later = [
        *story()[:9],
        (6.0, ev.MachineWarned("a", at(6.5), "eviction", "local")),
        (7.0, ev.MachineEnded("r", at(7), "returned")),
    ]
    assert [str(told) for told in follow(Timeline(), rows(later)).told][-2:] == [
        f"3 of {WILD} will be taken away",
        f"1 of {CALM} returned",
    ]


def test_the_newest_of_very_many_events_are_kept() -> None:
    resumed: list[tuple[float, ev.Event]] = [(n, ev.RunResumed(n)) for n in range(MOST_TOLD + 7)]
    told = follow(Timeline(), rows([*story()[:1], *resumed])).told
    assert (len(told), told[0].at, told[-1].at) == (MOST_TOLD, at(7), at(MOST_TOLD + 6))


def test_text_of_others_is_not_taken_for_a_place() -> None:
    ended = ev.RunEnded("failed", "no key {0} in {}", 0)
    assert str(follow(Timeline(), rows([*story()[:1], (1.0, ended)])).told[-1]) == "over: failed (no key {0} in {})"


def test_what_is_shown() -> None:
    one = seen()
    assert (one.reliable, one.transient, one.warned, one.evictions) == (1, 1, 0, 4)
    assert (one.stage, one.clock, one.loss, one.losses) == (2, 40, 0.2, ((10, 0.8), (40, 0.2)))
    assert (one.money.saved, one.money.used) == (0.75, 0.5)
    calm, wild = one.markets
    assert (calm.market, calm.machines, calm.bid, calm.price) == (CALM, 2, 95_000_000, None)
    assert (wild.market, wild.machines, wild.bid, wild.price) == (WILD, 0, None, 80_000_000)
    assert seen(5.5, 9).warned == 3


def test_the_answer_for_programs_is_json_and_tells_the_same() -> None:
    told = json.loads(json.dumps(answer(seen()), allow_nan=False))
    assert told["machines"] == {"reliable": 1, "transient": 1, "warned": 0}
    assert (told["spent_usd"], told["on_demand_usd"], told["budget_usd"]) == (3.0, 12.0, 6.0)
    assert (told["clock"], told["clocks"], told["evictions"]) == (40, 50, 4)
    assert told["footprint"][1] == ["2026-01-01T00:01:00Z", 1, 3]
    assert told["events"][0] == {"at": "2026-01-01T00:00:00Z", "what": "the run begins, on local"}


def test_unknown_is_not_nothing() -> None:
    past = follow(Timeline(), rows(story()[:1]))
    one = shown(past, "running", at(0), Money(None, None, None), None, prices)
    assert text(views.head(one)) == [
        "small-1   running",
        "spent -   on demand -",
        "machines 0 reliable + 0 transient   evictions 0   market 00:00:00",
    ]
    assert text(views.losses(one, 80, 1)) == ["loss  none is known"]
    assert answer(one)["spent_usd"] is None


def test_the_head_at_80_columns() -> None:
    assert text(views.head(seen())) == [
        "small-1   running   stage 2   clock 40 of 50   loss 0.2",
        "spent $3.00 of $6.00 (50%)   on demand $12.00   saved 75%",
        "machines 1 reliable + 1 transient   evictions 4   market 00:10:00",
    ]


def test_the_footprint_as_columns() -> None:
    """Ten minutes in ten columns: at most 6 machines, in three lines of 2."""
    lines = text(views.footprint(seen(), 10, 3))
    assert lines[1:] == ["      █", " ██████▄▄", "▄█████████"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (20, 5)])
def test_nothing_is_wider_than_the_terminal(width: int, height: int) -> None:
    one = seen()
    for part in (
        views.footprint(one, width, height),
        views.losses(one, width, height),
        views.events(one.told, width),
        views.once(one, width),
    ):
        assert all(len(line) <= width for line in text(part, width))
    assert len(text(views.footprint(one, width, height), width)) <= height + 1


@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 9)), max_size=12),
    st.integers(1, 600),
    st.integers(1, 120),
)
def test_the_columns_of_a_footprint_are_its_means(found: list[tuple[int, int]], span: int, width: int) -> None:
    """Against a count of seconds, one by one."""
    steps = [Step(at(0) + second * 10**6, 0, machines) for second, machines in sorted(found)]
    means = views.over_time(steps, at(0), at(0) + span * 10**6, width)
    whole = sum(
        next((step.transient for step in reversed(steps) if step.at <= at(0) + second * 10**6), 0)
        for second in range(span)
    )
    assert means.sum() / width * span == pytest.approx(whole)


def test_a_second_rent_of_an_order_is_the_same_story() -> None:
    """What of an order was found later was bought with it."""
    later = [*story()[:1], (1.0, order(1, WILD, 5, 4)), (1.0, came(1, 1, "a", "b")), (1.0, came(1, 1, "c"))]
    told = follow(Timeline(), rows(later)).told
    assert str(told[-1]) == f"rented 3 of {WILD} for at most $0.0001"
    assert told[-1].at == at(0) + MINUTE
