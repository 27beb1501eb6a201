"""Figures of a run that goes on."""

from __future__ import annotations

from dataclasses import replace

from spotctl.log import events as ev
from spotctl.show.runs.run_view import run_view
from tests.spotctl.show.runs.test_lines import live, state, view


def test_the_live_view_shows_the_spend_the_progress_and_the_expected_end() -> None:
    planned = ev.Planned(1.0, 0.5, 2.0, 1.0, 4.0, assumed=False)
    waiting = view(replace(state(3), planned=planned))
    assert live(waiting)[1:] == [
        "  spent $1.00 of $5.00   expected end in 1.0 hours of market time"
    ]
    lines = live(view(state()))
    assert lines[1:3] == [
        "  stage 2   clock 40 of 100   loss 0.2",
        "  spent $1.00 of $5.00   expected end in 11 minutes of market time",
    ]
    for goal in (None, 41):
        assert live(run_view(state(), state().at, attended=True, goal=goal))[2:] == []
