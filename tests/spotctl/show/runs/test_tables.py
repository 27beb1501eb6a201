"""Text and JSON of runs: `status`, the lines of a launch, and its summary."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, strategies as st

from pricing_data.market import Market
from spotctl.log import events as ev, folding
from spotctl.log.folding import fold
from spotctl.log.ledger.final_figures import busy, final_figures
from spotctl.log.ledger.rows import CostSoFar
from spotctl.log.log_row import LogRow
from spotctl.log.state import RunState
from spotctl.log.statuses import RunStatus
from spotctl.show.phrases import terms_text
from spotctl.show.runs import tables as run_tables
from spotctl.show.runs.figures import Money, RunFigures
from spotctl.show.runs.standing import standing_of, status_answer, status_table
from tests.spotctl.show.top.runs import at, rows, run_events
from tests.spotctl.show.top.test_snapshot import text

NANO_SECONDS = 3600 * 10**9
AWS, GCP = (
    Market.parse("aws/us-east-1/us-east-1a/c6i.large"),
    Market.parse("gcp/us-central1/us-central1-a/n2-standard-8"),
)
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
    return fold(rows(run_events()[:events]))


def figures(state: RunState) -> RunFigures:
    return RunFigures(
        state, state.at, Money(CostSoFar(NANO_SECONDS, NANO_SECONDS), None, 5 * NANO_SECONDS), 100, is_local=True
    )


def live(figures: RunFigures) -> list[str]:
    return [line.plain for line in run_tables.live(figures, 3.0)]


def test_the_live_view_shows_the_spend_the_progress_and_the_expected_end() -> None:
    planned = ev.Planned(1.0, 0.5, 2.0, 1.0, 4.0, assumed=False)
    waiting = figures(replace(state(3), planned=planned))
    assert live(waiting)[1:] == ["  spent $1.00 of $5.00   expected end in 1.0 hours of market time"]
    lines = live(figures(state()))
    assert lines[1:3] == [
        "  stage 2   clock 40 of 100   loss 0.2",
        "  spent $1.00 of $5.00   expected end in 11 minutes of market time",
    ]
    rented = replace(figures(state()), is_local=False, money=Money(None, None, None), goal=None)
    assert live(rented)[2:] == []
    rented = replace(rented, goal=41)
    assert live(rented)[2:] == []


def test_lines_for_what_changed_between_two_states() -> None:
    counts = [0, 5, 6, 12, 13, 16, 18]
    found = [run_tables.happened(state(before), state(after)) for before, after in pairwise(counts)]
    assert found == [
        ["rented 1 x c4.xlarge (sim-east-a) on demand", "rented 3 x c4.xlarge (sim-east-b), bid $0.0600/h"],
        ["clock 10   loss 0.8   stage 1"],
        ["eviction warning: 3 x c4.xlarge (sim-east-b)"],
        ["rented 2 x c4.xlarge (sim-east-a), bid $0.0950/h"],
        ["evicted: 3 x c4.xlarge (sim-east-b)"],
        ["clock 40   loss 0.2   stage 2", "evicted without warning: 1 x c4.xlarge (sim-east-a)"],
    ]
    assert run_tables.happened(state(), state()) == []


def test_machines_are_reported_as_returned_only_once_they_are() -> None:
    before = state()
    stopping = fold(rows([*run_events(), (9.0, ev.StopRequested("done", ""))]))
    assert run_tables.happened(before, stopping) == ["done: returning 2 machines"]
    returning = ev.ReturnIntended(9, ("r", "e"), "the run ends")
    gone = [(10.0, ev.MachineEnded(name, at(10), "returned")) for name in ("r", "e")]
    after = fold(rows([*run_events(), (9.0, ev.StopRequested("done", "")), (9.0, returning), *gone]))
    assert run_tables.happened(stopping, after) == []
    ended = folding.after(after, LogRow(99, "small-1", at(11), ENDED))
    assert run_tables.happened(after, ended) == ["Finished. All machines returned."]
    too_early = folding.after(stopping, LogRow(99, "small-1", at(11), replace(ENDED, outcome="failed")))
    assert run_tables.happened(stopping, too_early) == ["Failed. 2 machines still running."]


def test_summary() -> None:
    lines = text(run_tables.summary(state(), ENDED))
    assert lines[:3] == [
        "small-1: done (40 clocks)",
        "  cost       $2.00 for 9 minutes of market time, replayed: nothing was billed",
        "  on demand  $8.00 for the same work: 75% saved",
    ]
    assert re.fullmatch(r"  machines   6 rented, \d+% utilized, 2 still running", lines[3])
    assert lines[4:] == [
        "  evictions  survived 4 evictions",
        "  updates    1,200 applied, 0 lost",
        "  model      m",
    ]


def test_a_summary_of_a_run_that_saved_nothing_names_the_report_that_says_why() -> None:
    costly = replace(ENDED, facts={**ENDED.facts, "spent": 2 * ENDED.facts["on_demand"]})
    said = " ".join(text(run_tables.summary(state(), costly))[2:4])
    why = "why: spotctl report cost --local --job small"
    assert said == f"  on demand  $8.00 for the same work: 100% more expensive ({why})"


def test_evictions_are_the_same_number_everywhere() -> None:
    """Even if the job reports a fact of its own under that name."""
    now = state()
    ended = ev.RunEnded("done", "", 0, {"evictions": 77})
    status = RunStatus(now, attended=True, spent=CostSoFar(0, 0))
    assert status_answer([standing_of(status)])["jobs"][0]["replayed"] is True
    assert final_figures(now, ended)["evictions"] == status_answer([standing_of(status)])["jobs"][0]["evictions"] == 4
    assert "evictions 4" in live(figures(now))[0]


def test_utilization_of_a_command() -> None:
    """Its machine counts as working from when it runs until it ends; before that it is starting."""
    events = [
        run_events()[0],
        *run_events()[1:3],
        (2.0, ev.MachineRan("r")),
        (10.0, ev.MachineEnded("r", at(10), "returned")),
    ]
    assert busy(fold(rows(events))) == pytest.approx(0.8)
    assert busy(fold(rows(events[:1]))) is None


def test_a_checkpoint_interval_without_end() -> None:
    """No further checkpoint is planned: JSON has no infinity, so the answer says null."""
    events = [
        *run_events()[:3],
        (2.0, ev.AttemptBegan(1, ("r",), 2000)),
        (3.0, ev.Checkpointed(1, 0, 1, 10, 0.5, inf)),
    ]
    status = RunStatus(fold(rows(events)), attended=True, spent=CostSoFar(0, 0))
    (job,) = json.loads(json.dumps(status_answer([standing_of(status)]), allow_nan=False))["jobs"]
    assert job["checkpoint"] == {"number": 1, "seconds": 0.5, "bytes": 10, "every_seconds": None}
    assert live(figures(status.state))[1].endswith("checkpoint 1 (0.5 s each)")


@pytest.mark.parametrize(("width", "columns"), [(70, 8), (200, 9)])
def test_status_table_fits_the_terminal(width: int, columns: int) -> None:
    status = RunStatus(state(), attended=True, spent=CostSoFar(NANO_SECONDS, NANO_SECONDS))
    table = status_table([standing_of(status)], width)
    head, line = text(table, width)
    assert len(head.split()) == columns
    assert line.split()[0] == "small"
    assert line.split()[-2:] == ["$1.00", "4"]
    assert ("small-1" in line) == (width == 200)


def test_a_long_name_of_a_job_stays_whole_in_a_narrow_terminal() -> None:
    name = "nightly-recommendations-of-all-shops-in-europe-and-america"
    began = state().began
    assert began is not None
    status = RunStatus(
        replace(state(), began=replace(began, job=name)), attended=True, spent=CostSoFar(NANO_SECONDS, NANO_SECONDS)
    )
    head, line = text(status_table([standing_of(status)], 80), 80)
    assert head.split() == ["job", "state", "spent"]
    assert line.split() == [name, "running", "$1.00"]


@given(st.integers(1, 10**12))
def test_a_bid_is_never_shown_below_itself(bid: int) -> None:
    assert terms_text(GCP, bid, 1) == " at the spot price"
    assert terms_text(GCP, None, 1) == terms_text(AWS, None, 1) == " on demand"
    shown = float(terms_text(AWS, bid, 1).removeprefix(", bid $").removesuffix("/h"))
    assert bid / 1e9 <= shown + 1e-12
    assert shown - bid / 1e9 < 1e-4 + 1e-9
