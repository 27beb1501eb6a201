"""The live view of runs: lines stay whole on a narrow terminal, and say whose they are."""

from __future__ import annotations

from dataclasses import replace

from spotctl.log import events as ev
from spotctl.show.runs.figures import RunFigures
from spotctl.show.runs.view import RunView
from tests.spotctl.show.runs.test_tables import figures, state
from tests.spotctl.show.top.test_snapshot import text

LONG = "a-job-with-a-rather-long-name"
REASON = "buying 4 x c4.2xlarge, bid $0.0527/h lowers the expected cost per clock from $0.0271 to $0.0116"


def named(job: str) -> RunFigures:
    now = state()
    assert now.began is not None
    return figures(replace(now, run=f"{job}-1", began=replace(now.began, job=job), reason=REASON))


def test_what_does_not_fit_in_the_line_of_an_event_stands_below_its_text() -> None:
    shown = text(RunView(several=True).event("rented 6 x c4.2xlarge (sim-east-b), bid $0.0526/h", 80, LONG))
    assert shown == [
        f"    0 s   {LONG}: rented 6 x c4.2xlarge (sim-east-b), bid",
        "          $0.0526/h",
    ]


def test_only_several_runs_have_names() -> None:
    one, many = RunView(), RunView(several=True)
    assert text(one.event("x", 80, "a")) == ["    0 s   x"]
    assert text(many.event("x", 80, "a")) == ["    0 s   a: x"]
    assert text(many.event("stopping", 80)) == ["    0 s   stopping"]
    one.show(named("a"))
    many.show(named("a"))
    many.show(named("b"))
    assert text(one)[0].startswith("    0 s   machines")
    assert [line.split(": ")[0] for line in text(many) if ": machines" in line] == ["    0 s   a", "    0 s   b"]


def test_no_word_is_broken_and_what_follows_is_indented() -> None:
    view = RunView(several=True)
    view.show(named(LONG))
    shown = text(view, 60)
    assert all(line.startswith("  ") and len(line) <= 60 for line in shown)
    assert REASON in " ".join(" ".join(shown).split())


def test_more_runs_than_fit_on_the_terminal_have_a_line_each() -> None:
    view = RunView(several=True)
    for i in range(9):
        view.show(named(f"job{i}"))
    shown = text(view)
    assert [line.split()[2] for line in shown] == [f"job{i}:" for i in range(9)]


def test_a_run_before_its_first_machine_is_shown() -> None:
    view = RunView()
    view.show(figures(replace(state(1), planned=ev.Planned(1.0, 0.5, 2.0, 1.0, 4.0, assumed=False))))
    assert text(view)[0] == "    0 s   machines 0 reliable + 0 transient   evictions 0"
