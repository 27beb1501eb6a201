"""Tags of a computer: its runs have them, unless the job says otherwise."""

from __future__ import annotations

from pathlib import Path

from spotctl.files.job.reader import loads, restored
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.store import EventLog
from spotctl.run.start.live_markets import begin_market
from spotctl.run.start.runs import begin_run

JOB = """
name: tagged
kind: command
run: "true"
tags: {team: search}
resources: {clouds: [local]}
"""


def test_a_run_has_the_tags_of_its_computer_and_those_of_its_job_win(tmp_path: Path) -> None:
    settings, spec = (
        Settings(home=tmp_path, tags={"user": "ada", "team": "ads"}),
        loads(JOB, tmp_path / "job.yaml"),
    )
    begin_market(spec, settings)
    with EventLog(Paths(tmp_path).log) as log:
        journal, _ = begin_run(spec, settings, log)
        assert journal.state.began is not None
        assert restored(journal.state.began.spec, tmp_path).tags == {
            "user": "ada",
            "team": "search",
        }
