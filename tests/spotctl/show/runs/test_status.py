"""Tables of runs: on a narrow terminal, names and times stay whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.home.paths import Paths
from spotctl.log.jobs import JobLock, WaitingJob
from spotctl.show.runs.status import status_table, waiting_json
from tests.spotctl.show.runs.made_up_run import text
from tests.spotctl.show.runs.test_lines import state, view


@pytest.mark.parametrize(("width", "columns"), [(70, 8), (200, 9)])
def test_status_table_fits_the_terminal(width: int, columns: int) -> None:
    table = status_table([view(state())], width)
    head, line = text(table, width)
    assert len(head.split()) == columns
    assert line.split()[0] == "small"
    assert line.split()[-2:] == ["$1.00", "4"]
    assert ("small-1" in line) == (width == 200)


def test_a_long_name_of_a_job_stays_whole_in_a_narrow_terminal() -> None:
    name = "nightly-recommendations-of-all-shops-in-europe-and-america"
    began = state().began
    assert began is not None
    one = view(replace(state(), began=replace(began, job=name)))
    head, line = text(status_table([one], 80), 80)
    assert head.split() == ["job", "state", "spent"]
    assert line.split() == [name, "running", "$1.00"]


def test_a_launched_job_waits_while_its_launcher_lives(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    job = WaitingJob("later", ("first",), None, "later.yaml")
    assert waiting_json(job, paths)["state"] == "not begun"
    with JobLock(paths.locks, "first"), JobLock(paths.locks, "later"):
        assert waiting_json(job, paths) == {
            "name": "later",
            "state": "waiting",
            "after": ["first"],
            "begins": None,
            "file": "later.yaml",
        }
