"""A row that is lost is a fact about its run: the figures of all others stay as they are, to the
character, before and after a repair, and `log check`, `status` and `report cost` say the same of
the run itself."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import events as ev, ledger_reader
from spotctl.log.salvage import repair, salvage
from spotctl.show.costs.accounts import gather
from spotctl.show.costs.answers import as_csv, as_json
from spotctl.show.costs.periods import By
from spotctl.show.runs.reading import latest_views
from spotctl.show.runs.status import status_answer
from tests.spotctl.log.test_loss import changed, ended
from tests.spotctl.log.test_present import interrupted
from tests.spotctl.show.costs.made import ALWAYS, NOW, MadeRun, night, partly_reserved, write_log

Figures = dict[str, dict[str, Any]]


def going(name: str) -> MadeRun:
    """A run that was interrupted, under a name of its own."""
    made = interrupted()
    made.run, made.job = f"{name}-00000f", name
    at, began = made.events[0]
    assert isinstance(began, ev.RunBegan)
    made.events[0] = at, replace(began, job=name)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of trainings, commands and reservations, that have ended or go on."""
    home, chance = tmp_path_factory.mktemp("whole"), np.random.default_rng(3)
    nights = [night(0, chance), night(1, chance, "weekly"), night(2, chance)]
    write_log([*nights, ended("train-00000a", "train"), partly_reserved(0), going("going")], home)
    with closing(sqlite3.connect(home / "log.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home


@pytest.fixture(autouse=True)
def _at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_reader, "wall_us", lambda: NOW)


def rows_of(home: Path) -> list[tuple[int, str, str]]:
    with closing(sqlite3.connect(home / "log.sqlite")) as db:
        return db.execute("SELECT id, run, kind FROM events ORDER BY id").fetchall()


def reported(home: Path) -> tuple[Figures, dict[str, str], Any]:
    """The figures of each run, its line in CSV, and the whole report."""
    report = gather(Settings(home), (), ALWAYS, (By.RUN,), NOW)
    answer = as_json(report)
    lines = as_csv(report).splitlines()[1:]
    return (
        {group["run"]: group for group in answer["groups"]},
        {line.split(",")[0]: line for line in lines},
        answer,
    )


def shown(home: Path) -> Figures:
    """The lines of status about the latest run of each job."""
    read = latest_views(Settings(home))
    return {job["run"]: job for job in status_answer(read.runs, read.lost)["jobs"]}


def check(home: Path, run: str, whole: Path) -> None:
    """Report and status change for this run only: both say that it has lost rows, with the same
    figures.
    """
    groups, lines, answer = reported(home)
    groups_before, lines_before, _ = reported(whole)
    assert lines.keys() == lines_before.keys()
    for other in lines.keys() - {run}:
        assert (lines[other], json.dumps(groups[other])) == (
            lines_before[other],
            json.dumps(groups_before[other]),
        )
    of_run = groups[run]
    assert (of_run["total_high_usd"], answer["total_high_usd"]) == (None, None)
    assert of_run["rows_lost"] == answer["rows_lost"] >= 1
    jobs, before = shown(home), shown(whole)
    assert jobs.keys() == before.keys()
    assert all(
        json.dumps(jobs[other]) == json.dumps(before[other]) for other in before.keys() - {run}
    )
    if run in jobs:
        job = jobs[run]
        assert (job["spent_usd"], job["rows_lost"]) == (of_run["total_usd"], of_run["rows_lost"])
        assert job["spent_high_usd"] is None


def lose(whole: Path, home: Path, rows: Sequence[tuple[int, str, str]]) -> None:
    """Loses each of these rows in turn, and repairs the log."""
    for position, run, _ in rows:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(whole, home)
        changed(home / "log.sqlite", f"DELETE FROM events WHERE id = {position}")
        damage = salvage(home / "log.sqlite").damage
        assert position in {flaw.row for flaw in damage}
        assert {flaw.run for flaw in damage} == {run}
        check(home, run, whole)
        assert repair(Paths(home))[1]
        check(home, run, whole)
        repaired = salvage(home / "log.sqlite")
        assert not repaired.damage
        assert next((of, mark.first) for of, mark in repaired.dropped) == (run, position)


def one_of_each_kind(rows: Sequence[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    seen = set[str]()
    for row in reversed(rows):
        if row[2] not in seen:
            yield row
        seen.add(row[2])


def test_one_lost_row_of_each_kind_concerns_its_run_alone(whole: Path, tmp_path: Path) -> None:
    rows = [
        row
        for row in one_of_each_kind(rows_of(whole))
        if row[2] in ("RunBegan", "Rented", "Priced", "RunEnded")
    ]
    assert len(rows) == 4
    lose(whole, tmp_path / "home", rows)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_lost_row_concerns_its_run_alone(whole: Path, tmp_path: Path) -> None:
    rows = rows_of(whole)
    assert len(rows) > 250
    lose(whole, tmp_path / "home", rows)
