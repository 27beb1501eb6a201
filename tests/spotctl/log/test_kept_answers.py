"""What the log keeps of ended runs never changes an answer: on logs to which anything happens,
commands say what they say when nothing is kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import events as ev, ledger_reader
from spotctl.log.folding import fold
from spotctl.log.ledger.project import priced
from spotctl.log.salvage import raw_log, repair
from spotctl.log.state import LogRow
from spotctl.log.statuses import read_log
from spotctl.log.store import EventLog
from spotctl.show.runs import reading
from spotctl.show.runs.reading import RunViews, latest_views
from tests.spotctl.log.ledger.random_runs import RandomRun
from tests.spotctl.log.test_damaged_bytes import answers, forget
from tests.spotctl.log.test_loss import changed, ended
from tests.spotctl.show.costs.made import AWS, NIGHT, NOW, MadeRun, write_log

LOGS, STEPS = 5, 8
JOBS = ("a", "b", "c")


class Story:
    """A log to which things happen at random: runs go on side by side, end or not, are corrected,
    lose rows.
    """

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.rng, self.runs = home, np.random.default_rng([38, seed]), 0
        self.ended, self.going = list[LogRow](), dict[str, list[LogRow]]()

    def go_on(self) -> None:
        for job in JOBS:
            if job not in self.going and self.rng.random() < 0.6:
                self.runs += 1
                self.going[job] = self._rows(job, f"{job}-{self.runs:06x}")
            if job in self.going:
                self._write(job, int(self.rng.integers(1, 40)))
        if self.ended and self.rng.random() < 0.4:
            self._correct()
        if self.rng.random() < 0.3:
            self._lose_a_row()
        if self.rng.random() < 0.2:
            self._move()

    def _rows(self, job: str, run: str) -> list[LogRow]:
        made = RandomRun(self.rng, run, job)
        began = made.rows[0].event
        assert isinstance(began, ev.RunBegan)
        made.rows[0] = made.rows[0]._replace(event=replace(began, provider="aws"))
        state = fold(made.rows)
        if self.rng.random() < 0.8:
            for prices in priced(state, made.now, made.tariff):
                made.end(prices)
        facts = {"spent": int(self.rng.integers(10**12))} if self.rng.random() < 0.3 else {}
        made.end(
            ev.RunEnded(
                str(self.rng.choice(["done", "failed", "stopped"])), "", 10**15 + self.runs, facts
            )
        )
        return made.rows

    def _write(self, job: str, count: int) -> None:
        rows, self.going[job] = self.going[job][:count], self.going[job][count:]
        with EventLog(self.home / "log.sqlite") as log:
            for row in rows:
                log.append(row.run, row.at, row.event)
        if not self.going[job]:
            self.ended.append(rows[-1])
        if not self.going[job] or self.rng.random() < 0.1:
            # A run that does not go on was interrupted.
            del self.going[job]

    def _correct(self) -> None:
        of = self.ended[int(self.rng.integers(len(self.ended)))]
        with EventLog(self.home / "log.sqlite") as log:
            machines = list(fold(log.of_run(of.run)).machines)
            if machines:
                log.append(
                    of.run,
                    of.at,
                    ev.Corrected(machines[0], of.at, int(self.rng.integers(10**12)), "bill"),
                )

    def _lose_a_row(self) -> None:
        path = self.home / "log.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            (last,) = db.execute("SELECT max(id) FROM events").fetchone()
            db.execute("DROP TRIGGER no_update")
            db.execute(
                "UPDATE events SET body = 'x' WHERE id = ?", (int(self.rng.integers(1, last + 1)),)
            )
        repair(Paths(self.home))
        # The repair may have ended runs, and nothing is written to them afterwards.
        self.going.clear()

    def _move(self) -> None:
        """A file with the same rows, as after a restored backup."""
        rows = raw_log(self.home / "log.sqlite").rows
        with EventLog(self.home / "other.sqlite") as log:
            log.restore((row.run, row.at, row.kind, row.body) for row in rows)
        (self.home / "other.sqlite").rename(self.home / "log.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(LOGS))
def test_what_is_kept_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(ledger_reader, "wall_us", lambda: NOW)
    story = Story(tmp_path / "home", seed)
    story.home.mkdir()
    for _ in range(STEPS):
        story.go_on()
        kept = answers(story.home)
        assert kept == answers(story.home)
        forget(story.home / "log.sqlite")
        assert kept == answers(story.home)
        _same_as_the_whole_log(story.home)


def _same_as_the_whole_log(home: Path) -> None:
    """The views are those that follow from all rows."""
    settings = Settings(home)
    read = read_log(settings)
    whole = [RunViews(settings).listed(state) for state in read.latest]
    assert (list(latest_views(settings).runs), latest_views(settings).lost) == (whole, read.lost)


def test_a_price_that_becomes_known_counts(tmp_path: Path) -> None:
    """The run ended without its price in the log, so what is kept of it must not be its last
    word."""
    run = MadeRun("a-1", "a", NIGHT)
    run.begin(kind="command", run="true")
    run.end_machines(run.rent(AWS[0], 2, NIGHT), NIGHT + 4 * HOUR, "returned")
    run.finish(NIGHT + 4 * HOUR)
    write_log([run], tmp_path)
    for _ in range(2):
        status, report = answers(tmp_path)
        assert (status["jobs"][0]["spent_high_usd"], report["total_high_usd"]) == (None, None)
    events = [PriceEvent(AWS[0], at, 300_000_000) for at in (NIGHT, NIGHT + 9 * HOUR)]
    PriceStore(tmp_path / "prices").commit(FetchedRows(prices=PriceBatch.of(events)))
    status, report = answers(tmp_path)
    assert status["jobs"][0]["spent_usd"] == report["total_usd"] == pytest.approx(2.4)
    assert status["jobs"][0]["spent_high_usd"] == report["total_high_usd"] == pytest.approx(2.4)


def test_damage_to_rows_that_no_answer_needs_is_found_within_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log([ended("a-00000a", "a"), ended("a-00000b", "a")], tmp_path)
    monkeypatch.setattr(reading, "wall_us", lambda: NOW)
    before = latest_views(Settings(tmp_path))
    log = tmp_path / "log.sqlite"
    EventLog(log).close()
    changed(
        log, "UPDATE events SET at_us = at_us + 1 WHERE run = 'a-00000a' AND kind = 'Progressed'"
    )
    assert latest_views(Settings(tmp_path)) == before
    monkeypatch.setattr(reading, "wall_us", lambda: NOW + DAY)
    assert latest_views(Settings(tmp_path)).damage
