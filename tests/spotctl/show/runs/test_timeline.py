"""The history of a run: machines over time, and a line for each event."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from pricing_data.units import MINUTE
from spotctl.log import events as ev
from spotctl.show.runs.timeline import MAX_EVENTS, MachineCount, Timeline, follow
from tests.spotctl.show.runs.made_up_run import WILD, at, granted, order, rows, run_events


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
    later = [
        *run_events()[:7],
        (4.0, ev.MachineEnded("a", at(3), "failed")),
        (4.0, granted(2, 2, "found")),
    ]
    assert [count.at for count in follow(Timeline(), rows(later)).footprint] == [
        at(0),
        at(1),
        at(3),
        at(3),
    ]


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
    resumed: list[tuple[float, ev.Event]] = [(n, ev.RunResumed(n)) for n in range(MAX_EVENTS + 7)]
    kept = follow(Timeline(), rows([*run_events()[:1], *resumed])).events
    assert (len(kept), kept[0].at, kept[-1].at) == (MAX_EVENTS, at(7), at(MAX_EVENTS + 6))


def test_braces_in_messages_are_not_placeholders() -> None:
    ended = ev.RunEnded("failed", "no key {0} in {}", 0)
    assert (
        str(follow(Timeline(), rows([*run_events()[:1], (1.0, ended)])).events[-1])
        == "run ended: failed (no key {0} in {})"
    )


def test_machines_of_an_order_that_are_found_later_are_in_its_line() -> None:
    """What of an order was found later was bought with it."""
    later = [
        *run_events()[:1],
        (1.0, order(1, WILD, 5, 4)),
        (1.0, granted(1, 1, "a", "b")),
        (1.0, granted(1, 1, "c")),
    ]
    last = follow(Timeline(), rows(later)).events[-1]
    assert str(last) == "rented 3 x c4.xlarge (sim-east-b), bid $0.0001/h"
    assert last.at == at(0) + MINUTE


def test_a_raised_bid_is_said_with_its_figures_and_so_is_a_refusal() -> None:
    raised: list[tuple[float, ev.Event]] = [
        (7.0, ev.BidIntended(9, "d", 120_000_000, "outbid 0.4 times an hour")),
        (7.1, ev.BidChanged(9, "d", 120_000_000)),
    ]
    refused: list[tuple[float, ev.Event]] = [
        (7.2, ev.BidIntended(10, "d", 130_000_000)),
        (7.3, ev.BidChanged(10, "d", 120_000_000, "it is paused")),
    ]
    said = [
        str(event)
        for event in follow(Timeline(), rows([*run_events()[:13], *raised, *refused])).events
    ]
    assert "raising a bid to $0.1200/h: outbid 0.4 times an hour" in said
    assert said[-1] == "d bids $0.1200/h: it is paused"
