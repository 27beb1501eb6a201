"""Runs read from the event log, and `spotctl status --watch`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.local.replayed import Replayed
from spotctl.files.job.reader import load, written
from spotctl.home.config import Settings
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from spotctl.show.runs.reading import Watcher
from tests.spotctl.show.runs.made_up_run import START, at, rows, run_events

JOB = """\
name: small
kind: command
run: "true"
resources: {clouds: [local], types: [c4.xlarge]}
budget: 6 USD
"""


def killed_run(tmp_path: Path) -> Path:
    """The home of a run whose process was killed."""
    (tmp_path / "job.yaml").write_text(JOB)
    spec = load(tmp_path / "job.yaml")
    home = tmp_path / "home"
    LocalProvider(home / "local", lambda: Replayed.of(()), LocalSettings()).begin(at(10), 1.0)
    with EventLog(home / "log.sqlite") as log:
        for row in rows(run_events()):
            event = (
                replace(row.event, spec=written(spec))
                if isinstance(row.event, ev.RunBegan)
                else row.event
            )
            log.append(row.run, row.at, event)
    return home


def test_a_newer_run_replaces_one_that_has_ended(tmp_path: Path) -> None:
    run = killed_run(tmp_path)
    with closing(Watcher("small", Settings(run))) as watcher, EventLog(run / "log.sqlite") as log:
        assert watcher.look().view.run == "small-1"
        log.append("small-1", START, ev.RunEnded("done", "", 0, {"spent": 0, "on_demand": 0}))
        assert watcher.look().view.status == "done"
        (began,) = log.beginnings()
        log.append("small-2", START, began.event)
        after = watcher.look().view
        assert (after.run, after.status, after.evictions) == ("small-2", "interrupted", 0)
