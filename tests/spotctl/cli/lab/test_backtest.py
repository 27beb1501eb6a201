"""Options of `lab backtest`."""

from __future__ import annotations

from pathlib import Path

from tests.spotctl.lab.backtest.test_bids import SMALL, run


def test_options_of_other_scenarios_are_refused(tmp_path: Path) -> None:
    ended = run(tmp_path, SMALL, "--frontier")
    assert ended.code == 2
    assert "only --starts" in ended.err
