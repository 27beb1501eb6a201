"""Some nights of the month that `python -m tests.spotctl.nightly.month` plays: each has its one
message.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.nightly.month import FAILURES, play


def test_a_night_that_goes_wrong_has_one_message(tmp_path: Path) -> None:
    shown = list[str]()
    failures = [
        "the job fails",
        "the runner is killed",
        "the computer is off",
        "the job runs by hand",
        "all is well",
    ]
    assert play(tmp_path / "home", failures, shown.append) == []
    titles = [line for line in shown if line.startswith("small, night of ")]
    assert len(titles) == len(failures)
    assert "ModuleNotFoundError: No module named 'torch'" in titles[0]


def test_a_message_with_another_outcome_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAILURES, "the job fails", "done")
    wrong = play(tmp_path / "home", ["the job fails"], lambda _: None)
    assert [line.split(": ")[2].split()[0] for line in wrong] == [
        "messages",
        "health",
        "monitoring",
    ]
