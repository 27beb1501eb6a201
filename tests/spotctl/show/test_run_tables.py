"""Runs as they are shown while and after they run, without a terminal."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotctl.runlog import events as ev
from spotctl.runlog.state import RunState, fold
from spotctl.show import run_tables
from spotctl.show.run_tables import RunStatus
from tests.spotctl.show.top.runs import CALM, WILD, at, rows, story
from tests.spotctl.show.top.test_snapshot import text

NANO_SECONDS = 3600 * 10**9
ENDED = ev.RunEnded(
    "done",
    "40 clocks",
    0,
    {
        "spent": 2 * NANO_SECONDS,
        "on_demand": 8 * NANO_SECONDS,
        "updates_applied": 1200,
        "updates_lost": 0,
        "model": "m",
    },
)


def state(events: int | None = None) -> RunState:
    return fold(rows(story()[:events]))


def test_what_happened_between_two_looks() -> None:
    looks = [0, 5, 6, 12, 13, 16, 18]
    found = [run_tables.happened(state(before), state(after)) for before, after in pairwise(looks)]
    assert found == [
        [f"rented 1 of {CALM} on demand", f"rented 3 of {WILD} for at most $0.0600"],
        ["clock 10   loss 0.8   stage 1"],
        [f"3 of {WILD} will be taken away"],
        [f"rented 2 of {CALM} for at most $0.0950"],
        [f"3 of {WILD} evicted"],
        ["clock 40   loss 0.2   stage 2", f"1 of {CALM} evicted without a warning"],
    ]
    assert run_tables.happened(state(), state()) == []


def test_giving_everything_back_is_told_once() -> None:
    before = state()
    stopping = fold(rows([*story(), (9.0, ev.StopRequested("done", ""))]))
    assert run_tables.happened(before, stopping) == ["done; everything is given back"]
    returning = ev.ReturnIntended(9, ("r", "e"), "the run ends")
    gone = [(10.0, ev.MachineEnded(name, at(10), "returned")) for name in ("r", "e")]
    after = fold(rows([*story(), (9.0, ev.StopRequested("done", "")), (9.0, returning), *gone]))
    assert run_tables.happened(stopping, after) == []


def test_the_summary() -> None:
    lines = text(run_tables.summary(state(), ENDED))
    assert lines[:3] == [
        "small-1: done (40 clocks)",
        "  cost       $2.00 for 9 minutes of market time",
        "  on demand  $8.00 for the same work: 75% saved",
    ]
    assert lines[3].startswith("  machines   6 rented, at work ")
    assert lines[4:] == [
        "  evictions  4 machines taken away, and survived",
        "  updates    1,200 applied, lost: 0",
        "  model      m",
    ]


def test_evictions_are_one_number_wherever_they_are_told() -> None:
    """Also if what was run counts something of its own by that name."""
    now = state()
    ended = ev.RunEnded("done", "", 0, {"evictions": 77})
    standing = RunStatus(now, attended=True, spent=None)
    assert (
        run_tables.ending(now, ended)["evictions"] == run_tables.status_answer([standing])["jobs"][0]["evictions"] == 4
    )
    assert "evictions 4" in text(run_tables.live(now, 3.0))[0]


def test_how_busy_machines_were() -> None:
    """A command's machine works from when it runs to when it is over; before, it starts."""
    told = [
        story()[0],
        *story()[1:3],
        (2.0, ev.MachineRan("r")),
        (10.0, ev.MachineEnded("r", at(10), "returned")),
    ]
    assert run_tables.busy(fold(rows(told))) == pytest.approx(0.8)
    assert run_tables.busy(fold(rows(told[:1]))) is None


@pytest.mark.parametrize(("width", "columns"), [(80, 8), (200, 9)])
def test_the_table_of_jobs_fits(width: int, columns: int) -> None:
    table = run_tables.status_table([RunStatus(state(), attended=True, spent=NANO_SECONDS)], width)
    head, line = text(table, width)
    assert len(head.split()) == columns
    assert line.split()[0] == "small"
    assert line.split()[-2:] == ["$1.00", "4"]
    assert ("small-1" in line) == (width == 200)


@given(st.integers(1, 10**12))
def test_a_bid_is_never_shown_below_itself(bid: int) -> None:
    shown = float(run_tables.at_most(bid).removeprefix("$"))
    assert bid / 1e9 <= shown + 1e-12
    assert shown - bid / 1e9 < 1e-4 + 1e-9
