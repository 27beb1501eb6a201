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
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import CostSoFar
from spotctl.log.ledger.same_work import busy, final_figures
from spotctl.log.state import LogRow, RunState
from spotctl.show.phrases import terms_text
from spotctl.show.runs import lines as run_lines
from spotctl.show.runs.lines import LiveLines
from spotctl.show.runs.run_view import Money, RunView, run_view
from spotctl.show.runs.status import status_answer
from tests.spotctl.show.runs.made_up_run import at, rows, run_events, text

Timed = tuple[float, ev.Event]
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


def view(state: RunState) -> RunView:
    money = Money(CostSoFar(NANO_SECONDS, NANO_SECONDS), None, 5 * NANO_SECONDS)
    return run_view(state, state.at, attended=True, money=money, goal=100)


def live(view: RunView) -> list[str]:
    return [line.plain for line in run_lines.live(view, 3.0)]


def test_lines_for_what_changed_between_two_states() -> None:
    counts = [0, 5, 6, 12, 13, 16, 18]
    found = [run_lines.happened(state(before), state(after)) for before, after in pairwise(counts)]
    assert found == [
        [
            "rented 1 x c4.xlarge (sim-east-a) on demand",
            "rented 3 x c4.xlarge (sim-east-b), bid $0.0600/h",
        ],
        ["clock 10   loss 0.8   stage 1"],
        ["eviction warning: 3 x c4.xlarge (sim-east-b)"],
        ["rented 2 x c4.xlarge (sim-east-a), bid $0.0950/h"],
        ["evicted: 3 x c4.xlarge (sim-east-b)"],
        ["clock 40   loss 0.2   stage 2", "evicted without warning: 1 x c4.xlarge (sim-east-a)"],
    ]
    assert run_lines.happened(state(), state()) == []


def test_why_a_run_ends_is_said_before_its_end_and_once() -> None:
    """Listing leftovers may take minutes where a cloud does not answer."""
    order = ev.RentIntended(1, AWS, 1, 9, 9, 1.0, reliable=False, lease_until=10)
    began, why = ev.RunBegan("job", "aws", {}, "", 0), "no such image; name another"
    steps: list[tuple[float, ev.Event]] = [
        (0, began),
        (0, order),
        (1, ev.RentRefused(1, "BadRequest", why)),
        (1, ev.StopRequested("failed", why)),
    ]
    states = [fold(rows(steps[:count])) for count in (2, 3, 4)]
    assert [run_lines.happened(*pair) for pair in pairwise(states)] == [[f"refused: {why}"], []]
    waits: list[tuple[float, ev.Event]] = [
        (0, began),
        (9, ev.StopRequested("no capacity", "the regions are silent")),
    ]
    said = run_lines.happened(fold(rows(waits[:1])), fold(rows(waits)))
    assert said == ["no capacity: the regions are silent"]


def test_machines_are_reported_as_returned_only_once_they_are() -> None:
    before = state()
    stopping = fold(rows([*run_events(), (9.0, ev.StopRequested("done", ""))]))
    assert run_lines.happened(before, stopping) == ["done: returning 2 machines"]
    returning = ev.ReturnIntended(9, ("r", "e"), "the run ends")
    gone = [(10.0, ev.MachineEnded(name, at(10), "returned")) for name in ("r", "e")]
    after = fold(
        rows([*run_events(), (9.0, ev.StopRequested("done", "")), (9.0, returning), *gone])
    )
    assert run_lines.happened(stopping, after) == []
    ended = fold([LogRow(99, "small-1", at(11), ENDED)], after)
    assert run_lines.happened(after, ended) == ["Finished. All machines returned."]
    failed = LogRow(99, "small-1", at(11), replace(ENDED, outcome="failed"))
    too_early = fold([failed], stopping)
    assert run_lines.happened(stopping, too_early) == ["Failed. 2 machines still running."]


def test_summary() -> None:
    lines = text(run_lines.summary(state(), ENDED))
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
    said = " ".join(text(run_lines.summary(state(), costly))[2:4])
    why = "why: spotctl report cost --local --job small"
    assert said == f"  on demand  $8.00 for the same work: 100% more expensive ({why})"


def test_evictions_are_the_same_number_everywhere() -> None:
    """Even if the job reports a fact of its own under that name."""
    now = state()
    ended = ev.RunEnded("done", "", 0, {"evictions": 77})
    (job,) = status_answer([view(now)])["jobs"]
    assert job["replayed"] is True
    assert final_figures(now, ended)["evictions"] == job["evictions"] == 4
    assert "evictions 4" in live(view(now))[0]


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
    one = view(fold(rows(events)))
    (job,) = json.loads(json.dumps(status_answer([one]), allow_nan=False))["jobs"]
    assert job["checkpoint"] == {"number": 1, "seconds": 0.5, "bytes": 10, "every_seconds": None}
    assert live(one)[1].endswith("checkpoint 1 (0.5 s each)")


@given(st.integers(1, 10**12))
def test_a_bid_is_never_shown_below_itself(bid: int) -> None:
    assert terms_text(GCP, bid, 1) == " at the spot price"
    assert terms_text(GCP, None, 1) == terms_text(AWS, None, 1) == " on demand"
    shown = float(terms_text(AWS, bid, 1).removeprefix(", bid $").removesuffix("/h"))
    assert bid / 1e9 <= shown + 1e-12
    assert shown - bid / 1e9 < 1e-4 + 1e-9


LONG = "a-job-with-a-rather-long-name"
REASON = (
    "buying 4 x c4.2xlarge, bid $0.0527/h lowers the expected cost per clock from $0.0271 to "
    "$0.0116"
)


def named(job: str) -> RunView:
    now = state()
    assert now.began is not None
    return view(replace(now, run=f"{job}-1", began=replace(now.began, job=job), reason=REASON))


def test_what_does_not_fit_in_the_line_of_an_event_stands_below_its_text() -> None:
    shown = text(
        LiveLines(several=True).event("rented 6 x c4.2xlarge (sim-east-b), bid $0.0526/h", 80, LONG)
    )
    assert shown == [
        f"    0 s   {LONG}: rented 6 x c4.2xlarge (sim-east-b), bid",
        "          $0.0526/h",
    ]


def test_only_several_runs_have_names() -> None:
    one, many = LiveLines(), LiveLines(several=True)
    assert text(one.event("x", 80, "a")) == ["    0 s   x"]
    assert text(many.event("x", 80, "a")) == ["    0 s   a: x"]
    assert text(many.event("stopping", 80)) == ["    0 s   stopping"]
    one.show(named("a"))
    many.show(named("a"))
    many.show(named("b"))
    assert text(one)[0].startswith("    0 s   machines")
    assert [line.split(": ")[0] for line in text(many) if ": machines" in line] == [
        "    0 s   a",
        "    0 s   b",
    ]


def test_no_word_is_broken_and_what_follows_is_indented() -> None:
    shown_runs = LiveLines(several=True)
    shown_runs.show(named(LONG))
    shown = text(shown_runs, 60)
    assert all(line.startswith("  ") and len(line) <= 60 for line in shown)
    assert REASON in " ".join(" ".join(shown).split())


def test_more_runs_than_fit_on_the_terminal_have_a_line_each() -> None:
    shown_runs = LiveLines(several=True)
    for i in range(9):
        shown_runs.show(named(f"job{i}"))
    shown = text(shown_runs)
    assert [line.split()[2] for line in shown] == [f"job{i}:" for i in range(9)]


def test_a_run_before_its_first_machine_is_shown() -> None:
    shown_runs = LiveLines()
    shown_runs.show(
        view(replace(state(1), planned=ev.Planned(1.0, 0.5, 2.0, 1.0, 4.0, assumed=False)))
    )
    assert text(shown_runs)[0] == "    0 s   machines 0 reliable + 0 spot   evictions 0"


def test_a_command_that_was_never_started_used_nothing() -> None:
    """Its machines ran; a launch that is stopped while its machines are prepared reported them as
    95% utilized.
    """
    order, granted = run_events()[1:3]
    began: Timed = (0, ev.RunBegan("small", "local", {"kind": "command"}, "/nowhere", 0))
    ran: Timed = (1, ev.MachineRan("r"))
    stopped: list[Timed] = [
        (9, ev.StopRequested("stopped", "")),
        (10, ev.MachineEnded("r", at(10), "returned")),
    ]
    never = fold(rows([began, order, granted, ran, *stopped]))
    assert busy(never) == 0
    assert "  machines   1 rented, 0% utilized, 0 still running" in text(
        run_lines.summary(never, ENDED)
    )
    started = fold(rows([began, order, granted, ran, (2, ev.AttemptBegan(1, ("r",), 0)), *stopped]))
    assert busy(started) == 0.8
    assert busy(fold(rows([began, *stopped[:1]]))) is None
