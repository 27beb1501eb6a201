"""What the log keeps of ended runs: it changes no report, and is believed only while it says what
the rows say.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spotctl.log import events as ev, ledger_reader as read
from spotctl.log.loss import RawRow
from spotctl.log.salvage import raw_log
from spotctl.log.store import EventLog
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.test_damaged_bytes import forget
from tests.spotctl.show.costs.made import NIGHT, MadeRun, night, started_hour, write_log

FORMATS = ("json", "csv", "focus")
HOUR_RUN, NIGHTLY_RUN = "hour-1", "nightly-recsys-000000"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[MadeRun], Path]:
    """A night, and a machine that was returned within an hour, written once."""
    made, home = (
        [night(0, np.random.default_rng(19)), started_hour()],
        tmp_path_factory.mktemp("written"),
    )
    write_log(made, home)
    return made, home / "log.sqlite"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose events reports have read."""
    found: list[str] = []

    def read_from(*arguments: object) -> Iterator[read.RunRead]:
        for one in real(*arguments):
            found.append(one.state.run)
            yield one

    real: Callable[..., Iterator[read.RunRead]] = read.read_from
    monkeypatch.setattr(read, "read_from", read_from)
    return found


@pytest.fixture
def home(written: tuple[list[MadeRun], Path], seen: list[str], tmp_path: Path) -> Path:
    """A home with the log of `written`, on which a report has been made."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(written[1], home)
    cost()
    assert not seen, "the ends of the runs were written with their costs"
    return home


def cost(*words: str) -> str:
    ended = spotctl("report", "cost", "--by", "run", *(words or ("--json",)))
    assert ended.code == 0, ended.err
    return ended.out


def read_again(home: Path, seen: list[str]) -> set[str]:
    """The runs that the next report reads; it equals, to the byte, one that keeps nothing."""
    seen.clear()
    texts = [cost()]
    again = set(seen)
    texts += [cost("--format", one) for one in FORMATS]
    forget(home / "log.sqlite")
    assert [cost(), *(cost("--format", one) for one in FORMATS)] == texts
    return again


def test_later_reports_read_no_events_and_are_equal_to_the_byte(
    home: Path, seen: list[str]
) -> None:
    assert read_again(home, seen) == set()


def test_a_correction_of_an_ended_run_is_seen(home: Path, seen: list[str]) -> None:
    before = cost()
    with EventLog(home / "log.sqlite") as log:
        log.append(HOUR_RUN, NIGHT, ev.Corrected(f"i-{HOUR_RUN}-000", NIGHT, 10**12, "the bill"))
    assert cost() != before
    forget(home / "log.sqlite")
    cost()
    with EventLog(home / "log.sqlite") as log:
        log.append(
            HOUR_RUN, NIGHT, ev.Corrected(f"i-{HOUR_RUN}-000", NIGHT, -(10**12), "a mistake")
        )
    assert read_again(home, seen) == {HOUR_RUN}


@pytest.mark.parametrize(
    "damage",
    [
        "content = replace(content, '1', '2')",
        "lines = replace(lines, '1', '2')",
        "content = ''",
        "format = 0",
        "link = link + 1",
        "last_row = last_row - 1",
        "run = 'another-000001'",
    ],
)
def test_a_damaged_cost_is_not_believed(home: Path, seen: list[str], damage: str) -> None:
    with closing(sqlite3.connect(home / "log.sqlite")) as db, db:
        db.execute(f"UPDATE final_costs SET {damage} WHERE run = '{HOUR_RUN}'")
    assert read_again(home, seen) == {HOUR_RUN}


def test_the_cost_of_another_run_is_not_believed(home: Path, seen: list[str]) -> None:
    with closing(sqlite3.connect(home / "log.sqlite")) as db, db:
        db.execute(f"DELETE FROM final_costs WHERE run = '{HOUR_RUN}'")
        db.execute(f"UPDATE final_costs SET run = '{HOUR_RUN}'")
    assert len(read_again(home, seen)) == 2


def test_a_restored_log_with_other_events_is_read(home: Path, seen: list[str]) -> None:
    """As many events with the same numbers: one has another time, as after a backup that took
    another course.
    """
    _rewritten(
        home,
        lambda rows: [replace(one, at=one.at - 1) if one.id == len(rows) else one for one in rows],
    )
    assert len(read_again(home, seen)) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_of_a_repaired_log_only_runs_with_lost_rows_are_read(
    home: Path, seen: list[str], times: int
) -> None:
    for _ in range(times):
        with closing(sqlite3.connect(home / "log.sqlite", isolation_level=None)) as db:
            db.execute("DROP TRIGGER no_update")
            row = (
                "SELECT max(id) FROM events WHERE run = ? AND kind != 'RowsLost' AND kind != "
                "'RunEnded'"
            )
            db.execute(f"UPDATE events SET body = 'x' WHERE id = ({row})", (HOUR_RUN,))
        assert spotctl("log", "repair").code == 0
    assert read_again(home, seen) == {HOUR_RUN}


def test_active_runs_are_not_kept(home: Path, seen: list[str]) -> None:
    _rewritten(
        home, lambda rows: [one for one in rows if one.kind != "RunEnded" or one.run == HOUR_RUN]
    )
    cost()
    assert read_again(home, seen) == {NIGHTLY_RUN}


def test_reports_on_one_job_keep_what_others_need(home: Path, seen: list[str]) -> None:
    forget(home / "log.sqlite")
    cost("--job", "hour", "--json")
    assert seen == [HOUR_RUN]
    cost("--job", "nightly-recsys", "--json")
    assert len(seen) == 2
    assert read_again(home, seen) == set()


def _rewritten(home: Path, change: Callable[[list[RawRow]], list[RawRow]]) -> None:
    """Replaces the home's log by one with these changes."""
    raw = raw_log(home / "log.sqlite")
    assert not raw.failure
    with EventLog(home / "new.sqlite") as log:
        log.restore((row.run, row.at, row.kind, row.body) for row in change(list(raw.rows)))
    (home / "new.sqlite").rename(home / "log.sqlite")
