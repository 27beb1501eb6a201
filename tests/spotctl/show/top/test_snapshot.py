"""Snapshots of a run, their JSON and their text."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from pricing_data.units import MINUTE
from spotctl.log import events as ev
from spotctl.log.ledger.rows import CostSoFar
from spotctl.show.runs.figures import Money
from spotctl.show.top import views
from spotctl.show.top.snapshot import RunSnapshot, answer, take_snapshot
from spotctl.show.top.timeline import MOST_EVENTS, MachineCount, Timeline, follow
from tests.spotctl.show.top.runs import CALM, WILD, at, granted, order, prices, rows, run_events

NANO_SECONDS = 3600 * 10**9


def snapshot(minutes: float = 10, events: int | None = None) -> RunSnapshot:
    timeline = follow(Timeline(), rows(run_events()[:events]))
    money = Money(CostSoFar(3 * NANO_SECONDS, 3 * NANO_SECONDS), 12 * NANO_SECONDS, 6 * NANO_SECONDS)
    return take_snapshot(timeline, "running", at(minutes), money, 50, prices)


def text(what: object, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_footprint_counts_machines_over_time() -> None:
    counts = follow(Timeline(), rows(run_events())).footprint
    assert counts == (
        MachineCount(at(0), 1, 0),
        MachineCount(at(1), 1, 3),
        MachineCount(at(6), 1, 5),
        *(MachineCount(at(7), 1, left) for left in (4, 3, 2)),
        MachineCount(at(9), 1, 1),
    )


def test_footprint_times_never_go_backwards_when_events_are_logged_late() -> None:
    later = [*run_events()[:7], (4.0, ev.MachineEnded("a", at(3), "failed")), (4.0, granted(2, 2, "found"))]
    assert [count.at for count in follow(Timeline(), rows(later)).footprint] == [at(0), at(1), at(3), at(3)]


def test_machines_of_one_allocation_share_one_event_line() -> None:
    assert [str(event) for event in follow(Timeline(), rows(run_events())).events] == [
        "run started on local",
        "rented 1 x c4.xlarge (sim-east-a) on demand",
        "rented 3 x c4.xlarge (sim-east-b), bid $0.0600/h",
        "eviction warning: 3 x c4.xlarge (sim-east-b)",
        "refused: 2 x c4.xlarge (sim-east-a): no capacity",
        "rented 2 x c4.xlarge (sim-east-a), bid $0.0950/h",
        "evicted: 3 x c4.xlarge (sim-east-b)",
        "evicted without warning: 1 x c4.xlarge (sim-east-a)",
    ]


@given(st.lists(st.integers(0, len(run_events())), max_size=3))
def test_reading_in_parts_gives_the_same_timeline(cuts: list[int]) -> None:
    whole, edges = rows(run_events()), [0, *sorted(cuts), len(run_events())]
    timeline = Timeline()
    for begin, end in pairwise(edges):
        timeline = follow(timeline, whole[begin:end])
    assert timeline == follow(Timeline(), whole)


def test_evictions_of_one_allocation_are_merged_across_other_events() -> None:
    later = [*run_events(), (9.0, ev.RunResumed(0)), (9.0, ev.MachineEnded("e", at(9), "evicted"))]
    assert [str(event) for event in follow(Timeline(), rows(later)).events][-2:] == [
        "evicted without warning: 2 x c4.xlarge (sim-east-a)",
        "run resumed by another process",
    ]


def test_a_second_warning_adds_no_line_and_a_return_needs_no_warning() -> None:
    later = [
        *run_events()[:9],
        (6.0, ev.MachineWarned("a", at(6.5), "eviction", "local")),
        (7.0, ev.MachineEnded("r", at(7), "returned")),
    ]
    assert [str(event) for event in follow(Timeline(), rows(later)).events][-2:] == [
        "eviction warning: 3 x c4.xlarge (sim-east-b)",
        "returned: 1 x c4.xlarge (sim-east-a)",
    ]


def test_only_the_latest_events_are_kept() -> None:
    resumed: list[tuple[float, ev.Event]] = [(n, ev.RunResumed(n)) for n in range(MOST_EVENTS + 7)]
    kept = follow(Timeline(), rows([*run_events()[:1], *resumed])).events
    assert (len(kept), kept[0].at, kept[-1].at) == (MOST_EVENTS, at(7), at(MOST_EVENTS + 6))


def test_braces_in_messages_are_not_placeholders() -> None:
    ended = ev.RunEnded("failed", "no key {0} in {}", 0)
    assert (
        str(follow(Timeline(), rows([*run_events()[:1], (1.0, ended)])).events[-1])
        == "run ended: failed (no key {0} in {})"
    )


def test_snapshot_of_a_run() -> None:
    one = snapshot()
    assert (one.reliable, one.transient, one.warned, one.evictions) == (1, 1, 0, 4)
    assert (one.stage, one.clock, one.loss, one.losses) == (2, 40, 0.2, ((10, 0.8), (40, 0.2)))
    assert (one.money.saved, one.money.used) == (0.75, 0.5)
    calm, wild = one.markets
    assert (calm.market, calm.machines, calm.bid, calm.price) == (CALM, 2, 95_000_000, None)
    assert (wild.market, wild.machines, wild.bid, wild.price) == (WILD, 0, None, 80_000_000)
    assert snapshot(5.5, 9).warned == 3


def test_the_loss_of_a_run_that_has_ended_is_that_of_its_model_as_in_status() -> None:
    ended = follow(Timeline(), rows([*run_events(), (9.5, ev.RunEnded("done", "", at(9.5), {"loss": 0.19}))]))
    money = Money(CostSoFar(0, 0), None, None)
    assert take_snapshot(ended, "done", at(10), money, 50, prices).loss == 0.19


def test_json_answer() -> None:
    found = json.loads(json.dumps(answer(snapshot()), allow_nan=False))
    assert found["machines"] == {"reliable": 1, "transient": 1, "warned": 0}
    assert (found["spent_usd"], found["on_demand_usd"], found["budget_usd"]) == (3.0, 12.0, 6.0)
    assert found["replayed"] is True
    assert (found["clock"], found["clocks"], found["evictions"]) == (40, 50, 4)
    assert found["footprint"][1] == ["2026-01-01T00:01:00Z", 1, 3]
    assert found["events"][0] == {"at": "2026-01-01T00:00:00Z", "what": "run started on local"}


def test_gpus_are_the_mean_of_a_markets_machines() -> None:
    used = [(9.0, ev.CardsUsed("r", 80, 50)), (9.0, ev.CardsUsed("e", 94, 72)), (9.0, ev.CardsUsed("d", 1, 1))]
    events = [*run_events(), *used]
    one = take_snapshot(
        follow(Timeline(), rows(events)), "running", at(10), Money(CostSoFar(0, 0), 0, None), None, prices
    )
    assert [line["gpus"] for line in answer(one)["markets"]] == [{"busy": 0.87, "memory": 0.61}, None]
    assert text(views.markets(one, 80, 9)) == [
        "prices (synthetic)    machines     spot       bid  on demand  gpu  memory",
        "sim-east-a/c4.xlarge         2        -  reliable    $0.2000  87%     61%",
        "sim-east-b/c4.xlarge         0  $0.0800         -    $0.2000",
    ]
    wide = text(views.markets(one, 150, 9), 150)
    assert "87%     61%" in wide[1]
    assert wide[0].endswith("since the run started")
    unknown = [*events, (10.0, ev.CardsUsed("r", None, None)), (10.0, ev.CardsUsed("e", None, None))]
    one = take_snapshot(
        follow(Timeline(), rows(unknown)), "running", at(11), Money(CostSoFar(0, 0), 0, None), None, prices
    )
    assert "gpu" not in "\n".join(text(views.once(one, 80)))


def test_unknown_amounts_are_not_shown_as_zero() -> None:
    timeline = follow(Timeline(), rows(run_events()[:1]))
    one = take_snapshot(timeline, "running", at(0), Money(None, None, None), None, prices)
    assert text(views.head(one)) == [
        "small-1   running",
        "spent -   on demand -   replayed",
        "machines 0 reliable + 0 transient   evictions 0   market time 00:00:00",
    ]
    assert text(views.losses(one, 80, 1)) == ["loss  not reported yet"]
    assert answer(one)["spent_usd"] is None


def test_head_at_80_columns() -> None:
    assert text(views.head(snapshot())) == [
        "small-1   running   stage 2   clock 40 of 50   loss 0.2",
        "spent $3.00 of $6.00 budget (50%)   on demand $12.00: 75% saved   replayed",
        "machines 1 reliable + 1 transient   evictions 4   market time 00:10:00",
    ]


def test_footprint_as_columns() -> None:
    """Ten minutes in ten columns: at most 6 machines, in three lines of 2."""
    lines = text(views.footprint(snapshot(), 10, 3))
    assert lines[1:] == ["      █", " ██████▄▄", "▄█████████"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (20, 5)])
def test_nothing_exceeds_the_terminal(width: int, height: int) -> None:
    one = snapshot()
    for part in (
        views.footprint(one, width, height),
        views.losses(one, width, height),
        views.events(one.events, width),
        views.once(one, width),
    ):
        assert all(len(line) <= width for line in text(part, width))
    assert len(text(views.footprint(one, width, height), width)) <= height + 1


@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 9)), max_size=12),
    st.integers(1, 600),
    st.integers(1, 120),
)
def test_footprint_columns_are_means(changes: list[tuple[int, int]], span: int, width: int) -> None:
    """Compared with counting second by second."""
    counts = [MachineCount(at(0) + second * 10**6, 0, machines) for second, machines in sorted(changes)]
    means = views.over_time(counts, at(0), at(0) + span * 10**6, width)
    whole = sum(
        next((count.transient for count in reversed(counts) if count.at <= at(0) + second * 10**6), 0)
        for second in range(span)
    )
    assert means.sum() / width * span == pytest.approx(whole)


def test_x() -> None:
    """What of an order was found later was bought with it."""
    later = [*run_events()[:1], (1.0, order(1, WILD, 5, 4)), (1.0, granted(1, 1, "a", "b")), (1.0, granted(1, 1, "c"))]
    last = follow(Timeline(), rows(later)).events[-1]
    assert str(last) == "rented 3 x c4.xlarge (sim-east-b), bid $0.0001/h"
    assert last.at == at(0) + MINUTE
