"""Logs of the version before numbered rows are read and numbered, whatever happens meanwhile; loss
concerns one run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zlib import crc32

import pytest

from spotctl.home.config import Settings
from spotctl.log import events as ev, schema, store
from spotctl.log.ledger import final_cost
from spotctl.log.ledger.account import RunPart, RunTimeline, Sums
from spotctl.log.ledger.rows import LedgerRow
from spotctl.log.outcomes import BrokenLog, LogFailed
from spotctl.log.salvage import raw_log, salvage
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.show.costs.accounts import gather
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.periods import By
from spotctl.show.runs.run_view import RunView
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.old_form import numbered, to_old_form
from tests.spotctl.log.test_loss import OTHER, RUN, changed, ended, group_of
from tests.spotctl.show.costs.made import ALWAYS, NIGHT, NOW, write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of two jobs with the same run each, as an earlier version wrote it."""
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(RUN, "train"), ended(OTHER, "tune")], home)
    to_old_form(home / "log.sqlite")
    return home / "log.sqlite"


def report(home: Path) -> Any:  # noqa: ANN401 - JSON
    return as_json(gather(Settings(home), (), ALWAYS, (By.RUN,), NOW))


def is_chained(log: Path) -> bool:
    found = numbered(log)
    return found is not None and all(number is not None for number, _ in found)


OPEN = """
import os, signal, sqlite3, sys
from pathlib import Path

class Killed(sqlite3.Connection):
    left = int(sys.argv[2])

    def cursor(self):
        return super().cursor(KilledCursor)

class KilledCursor(sqlite3.Cursor):
    def step(self):
        Killed.left -= 1
        if not Killed.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, *words):
        self.step()
        return super().execute(*words)

    def executemany(self, *words):
        self.step()
        return super().executemany(*words)

connect = sqlite3.connect
sqlite3.connect = lambda *words, **options: connect(*words, factory=Killed, **options)
from spotctl.log import events as ev
from spotctl.log.store import EventLog
with EventLog(Path(sys.argv[1])) as log:
    for run in sys.argv[3:]:
        last = log.of_run(run)[-1]
        log.append(run, last.at, ev.RunEnded("done", "", last.at))
"""


@pytest.mark.slow
def test_an_upgrade_that_is_killed_at_any_step_is_done_by_the_next_process(
    log: Path, tmp_path: Path
) -> None:
    expected, step, code = report(_copy(log, tmp_path / "whole").parent), 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        step += 1
        copy = _copy(log, tmp_path / f"killed-{step}")
        code = subprocess.run(
            [sys.executable, "-c", OPEN, str(copy), str(step)], check=False
        ).returncode
        assert code in (0, -signal.SIGKILL)
        # What the killed process did is all or nothing.
        assert numbered(copy) is None or is_chained(copy)
        assert report(copy.parent) == expected
        assert is_chained(copy)
        assert spotctl("--home", str(copy.parent), "log", "check").code == 0
    assert step > 15


@pytest.mark.slow
def test_a_run_has_its_end_and_its_cost_or_neither(tmp_path: Path) -> None:
    """Killed at any step of writing them."""
    home, run, step, code = tmp_path / "home", ended(RUN, "train"), 0, -signal.SIGKILL
    home.mkdir()
    last, _ = run.events.pop()
    write_log([run], home)
    with EventLog(home / "log.sqlite") as log:
        before = len(log.of_run(RUN))
    found = set[tuple[int, int]]()
    while code == -signal.SIGKILL:
        step += 1
        copy = _copy(home / "log.sqlite", tmp_path / f"killed-{step}")
        code = subprocess.run(
            [sys.executable, "-c", OPEN, str(copy), str(step), RUN], check=False
        ).returncode
        with closing(sqlite3.connect(copy)) as db:
            rows = db.execute(
                "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM final_costs)"
            ).fetchone()
        found.add(rows)
        with EventLog(copy) as log:
            log.check(last)
            assert len(log.of_run(RUN)) == rows[0]
    assert (code, found) == (0, {(before, 0), (before + 1, 1)})


def _copy(log: Path, home: Path) -> Path:
    home.mkdir()
    for name in (log.name, "log.begun"):
        if log.with_name(name).exists():
            shutil.copy(log.with_name(name), home)
    return home / log.name


def test_two_processes_upgrade_a_log_once(log: Path) -> None:
    words = [sys.executable, "-c", OPEN, str(log), "0"]
    with ThreadPoolExecutor(4) as threads:
        assert (
            list(threads.map(lambda _: subprocess.run(words, check=False).returncode, range(4)))
            == [0] * 4
        )
    first = numbered(log)
    assert is_chained(log)
    EventLog(log).close()
    assert numbered(log) == first


HOLD = """
import sys, time
from pathlib import Path
from spotctl.log.jobs import JobLock
lock = JobLock(Path(sys.argv[1]), "train")
print("held", flush=True)
time.sleep(60)
"""


def test_an_upgrade_waits_while_a_process_runs_a_job(log: Path) -> None:
    """Until then, the log is read and written as the earlier version does it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(log.with_name("locks"))], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = report(log.parent)
        with EventLog(log) as opened:
            opened.append(
                "train-00000c",
                NIGHT,
                ev.RunBegan("train", "aws", {"kind": "command", "run": "true"}, "", NIGHT),
            )
        assert numbered(log) is None
        assert spotctl("log", "check").code == 0
        os.kill(holder.pid, signal.SIGKILL)
    after = report(log.parent)
    assert is_chained(log)
    assert {group["run"] for group in after["groups"]} == {RUN, OTHER, "train-00000c"}
    assert after["groups"][0] == before["groups"][0]


GO_ON = (
    "INSERT INTO events (run, at_us, kind, body, checksum) SELECT run, at_us, kind, body, checksum "
    "FROM events WHERE kind = 'Progressed'"
)
"""The earlier version goes on writing to runs."""


def test_the_damaged_end_of_one_chain_does_not_close_the_log_to_other_runs(log: Path) -> None:
    EventLog(log).close()
    with closing(sqlite3.connect(log)) as db, db:
        db.execute(f"UPDATE runs SET rows = rows + 1 WHERE run = '{RUN}'")
        db.execute(GO_ON)
    with EventLog(log) as opened:
        assert opened.of_run(OTHER)
        with pytest.raises(BrokenLog, match=f"of run {RUN} is missing"):
            opened.of_run(RUN)
    assert spotctl("log", "check").code == 1
    assert spotctl("log", "repair").code == 0
    assert is_chained(log)


def test_a_log_that_an_earlier_version_goes_on_writing_is_numbered_again(log: Path) -> None:
    EventLog(log).close()
    with closing(sqlite3.connect(log)) as db, db:
        db.execute(GO_ON)
    assert not is_chained(log)
    EventLog(log).close()
    assert is_chained(log)
    assert spotctl("log", "check").code == 0


def test_a_damaged_log_of_an_earlier_version_is_left_as_it_is_until_it_is_repaired(
    log: Path, approved: Approved
) -> None:
    changed(log, f"DELETE FROM events WHERE run = '{RUN}' AND kind = 'Progressed'")
    approved(spotctl("report", "cost"))
    assert spotctl("log", "check").code == 1
    assert numbered(log) is None
    assert spotctl("log", "repair").code == 0
    assert spotctl("report", "cost").code == 0
    assert is_chained(log)


def test_equal_runs_count_one_by_one(log: Path, tmp_path: Path) -> None:
    """Nothing that is kept of one run is another's, whatever they have in common."""
    for _ in range(2):
        assert [group["total_usd"] for group in report(log.parent)["groups"]] == [2.4, 2.4]
    home = tmp_path / "copies"
    home.mkdir()
    with EventLog(log) as opened, EventLog(home / "log.sqlite") as copies:
        rows = opened.of_run(RUN)
        for number in range(3):
            for row in rows:
                copies.append(f"train-{number:06x}", row.at, row.event)
    for _ in range(2):
        assert report(home)["total_usd"] == pytest.approx(3 * 2.4)


def test_the_cost_of_a_run_is_written_with_its_end(tmp_path: Path) -> None:
    path, rows = tmp_path / "log.sqlite", ended(RUN, "train").log()
    with EventLog(path) as log, closing(sqlite3.connect(path)) as other:
        for row in rows:
            log.append(row.run, row.at, row.event)
            (costs,) = other.execute("SELECT count(*) FROM final_costs").fetchone()
            assert costs == isinstance(row.event, ev.RunEnded)


def _damaged(home: Path, statement: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    changed(home / "log.sqlite", statement)
    # What rows say is checked once a day.
    changed(home / "log.sqlite", "DELETE FROM checks")
    return spotctl("--home", str(home), "log", "check", "--json").json["damage"], report(home)


def _with_run_to_end(home: Path) -> tuple[EventLog, LogRow]:
    """The log of a run without its end, and that end."""
    rows = ended(RUN, "train").log()
    log = EventLog(home / "log.sqlite")
    for row in rows[:-1]:
        log.append(row.run, row.at, row.event)
    return log, rows[-1]


def test_the_end_of_a_run_is_written_whatever_its_rows_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: object) -> None:
        raise KeyError("m-1")

    monkeypatch.setattr(final_cost, "final_account", unreadable)
    log, end = _with_run_to_end(tmp_path)
    with log:
        log.append(end.run, end.at, end.event)
        assert log.ended_runs() == {RUN}
        assert not log.final("final_costs", log.ends())
    monkeypatch.undo()
    assert report(tmp_path)["total_usd"] == 2.4


def test_the_end_of_a_run_is_not_written_where_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, end = _with_run_to_end(tmp_path)

    def failing(_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_READ"
        with log._failing():
            raise error

    with log:
        monkeypatch.setattr(final_cost, "final_account", failing)
        with pytest.raises(LogFailed, match="disk I/O error"):
            log.append(end.run, end.at, end.event)
        monkeypatch.undo()
        assert not log.ended_runs()
        assert not log.final("final_costs", log.ends())
        log.append(end.run, end.at, end.event)
        log.check(NOW)
    assert report(tmp_path)["total_usd"] == 2.4


@pytest.mark.parametrize("other_run", [OTHER, RUN])
def test_other_processes_write_while_the_cost_of_a_run_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_run: str
) -> None:
    """The cost is kept only if the run has no row since."""
    log, end = _with_run_to_end(tmp_path)
    final_account = final_cost.final_account

    def meanwhile(rows: Sequence[LogRow]) -> RunPart | None:
        with EventLog(tmp_path / "log.sqlite") as other:
            other._db.execute("PRAGMA busy_timeout = 0")
            other.append(
                other_run,
                end.at,
                ev.RunBegan("tune", "aws", {}, "", NIGHT) if other_run == OTHER else ASKED,
            )
        return final_account(rows)

    with log:
        monkeypatch.setattr(final_cost, "final_account", meanwhile)
        log.append(end.run, end.at, end.event)
        assert log.final("final_costs", log.ends()).keys() == (
            {RUN} if other_run == OTHER else set()
        )
        log.check(NOW)
    assert {group["run"]: group["total_usd"] for group in report(tmp_path)["groups"]}[RUN] == 2.4


ASKED = ev.StopRequested("stopped", "")


def _going_on(log: Path, db: sqlite3.Connection) -> None:
    """Before each later query, another process writes to a run."""

    def write(statement: str) -> None:
        if statement.startswith("SELECT"):
            with closing(sqlite3.connect(log)) as other, other:
                values = (
                    RUN,
                    NIGHT,
                    "StopRequested",
                    '{"outcome": "stopped", "message": "", "facts": {}}',
                )
                end = schema.chain_end(other, RUN)
                assert end is not None
                content = schema.checksum(*values)
                (last,) = other.execute("SELECT max(id) FROM events").fetchone()
                end = end.with_row(last + 1, values[2], values[3], content)
                other.execute(schema.INSERT, (*values, content, end.rows, end.link))
                schema.put_ends(other, [end])

    db.set_trace_callback(write)


def test_a_log_that_another_process_writes_to_is_read_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, end = _with_run_to_end(tmp_path)
    path = tmp_path / "log.sqlite"
    with log:
        _going_on(path, log._db)
        for _ in range(3):
            rows = log.of_run(end.run)
            assert log.of_run(end.run, rows[-1].id)
        log.check(NOW)
        log._db.set_trace_callback(None)
        written = len(log.of_run(end.run))
    assert written > len(rows)

    def connect(path: Path, _: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None)
        _going_on(path, db)
        return db

    monkeypatch.setattr(store, "connect", connect)
    raw = raw_log(path)
    monkeypatch.undo()
    assert (raw.failure, raw.last, raw.written) == ("", len(raw.rows), {RUN: len(raw.rows)})
    assert raw.last >= written


def _counted(db: sqlite3.Connection, rows: int) -> None:
    """The run has another number of rows, with the right checksum."""
    end = schema.chain_end(db, RUN)
    assert end is not None
    schema.put_ends(db, [end._replace(rows=rows)])


GARBAGE = {
    "number": "UPDATE events SET number = 4294967296 WHERE id = 4",
    "last number": "UPDATE events SET number = 4294967296 WHERE id = (SELECT max(id) FROM events)",
    "negative number": "UPDATE events SET number = -1 WHERE id = 4",
    "text as number": "UPDATE events SET number = 'x' WHERE id = 4",
    "text as link": "UPDATE events SET link = 'x' WHERE id = 4",
    "position": "UPDATE events SET id = 4294967296 WHERE id = 4",
    "last position": "UPDATE sqlite_sequence SET seq = 4294967296",
    "count": "UPDATE runs SET rows = 4294967296",
    "text as count": "UPDATE runs SET rows = 'x'",
}


@pytest.mark.parametrize("what", [*GARBAGE, "count with its checksum"])
def test_a_number_that_no_row_can_have_is_damage_and_not_a_count(log: Path, what: str) -> None:
    before = spotctl("report", "cost", "--json").json
    with closing(sqlite3.connect(log)) as db, db:
        db.execute("DELETE FROM checks")
        if what in GARBAGE:
            db.execute("DROP TRIGGER no_update")
            db.execute(GARBAGE[what])
        else:
            _counted(db, 2**32)
    salvaged = salvage(log)
    assert salvaged.damage
    assert sum(len(loss.positions) for loss in salvaged.losses) < log.stat().st_size
    assert spotctl("log", "check").code == 1
    # A report refuses, or says that rows are lost, or is right.
    found = spotctl("report", "cost", "--json")
    assert found.code or found.json["rows_lost"] or found.json == before
    assert spotctl("log", "repair").code == 0
    assert spotctl("log", "check").code == 0


def test_a_beginning_that_cannot_be_read_stops_no_other_run(tmp_path: Path) -> None:
    """In a log so old that its rows have no checksums."""
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(RUN, "train"), ended(OTHER, "tune")], home)
    to_old_form(home / "log.sqlite")
    changed(home / "log.sqlite", "UPDATE events SET checksum = NULL")
    changed(
        home / "log.sqlite",
        f"UPDATE events SET body = 'x' WHERE kind = 'RunBegan' AND run = '{RUN}'",
    )
    with EventLog(home / "log.sqlite") as log:
        assert log.of_run(OTHER)
        with pytest.raises(BrokenLog, match="damaged RunBegan"):
            log.of_run(RUN)
    assert spotctl("log", "check").code == 1
    assert spotctl("log", "repair").code == 0
    assert group_of(spotctl("report", "cost", "--json").json, "tune")["total_usd"] == 2.4


def _shapes(kind: Any, known: dict[str, dict[str, str]]) -> None:  # noqa: ANN401 - a type
    """The fields of a class of values, and of those that its fields hold, with their types."""
    has_fields = is_dataclass(kind) or hasattr(kind, "_fields")
    fields = get_type_hints(kind) if has_fields else {}
    if fields and kind.__name__ not in known:
        known[kind.__name__] = {
            name: re.sub(r"[\w.]+\.", "", str(field)) for name, field in fields.items()
        }
        for field in fields.values():
            _shapes(field, known)
    for held in get_args(kind):
        _shapes(held, known)


def test_what_is_kept_gets_a_new_format_when_its_fields_change() -> None:
    """Logs have what earlier versions kept: where the digest differs, `FINAL_FORMAT` is raised with
    it.
    """
    known = dict[str, dict[str, str]]()
    for kind in (RunTimeline, Sums, LedgerRow, RunView):
        _shapes(kind, known)
    assert (schema.FINAL_FORMAT, crc32(json.dumps(known, sort_keys=True).encode())) == (
        13,
        1300016139,
    ), known


@pytest.mark.parametrize("is_old", [False, True], ids=["numbered", "of an earlier version"])
def test_a_home_that_cannot_be_written_is_read_and_stays_as_it_is(
    log: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    expected = report(_copy(log, log.parent.with_name("writable")).parent)
    if not is_old:
        EventLog(log).close()
    before = log.read_bytes()
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    for _ in range(2):
        assert report(log.parent) == expected
        assert spotctl("log", "check").code == 0
        assert group_of(spotctl("report", "cost", "--json").json, "train")["total_usd"] == 2.4
        assert spotctl("status", "--json").code == 0
    assert log.read_bytes() == before
    assert is_chained(log) is not is_old


@pytest.mark.slow
def test_a_row_that_is_lost_concerns_its_run_alone(log: Path, tmp_path: Path) -> None:
    """Each row in turn, of ended runs and of one that goes on: the check names it, and no other
    figure changes.
    """
    with EventLog(log) as opened:
        for row in ended("train-00000c", "third").log()[:-2]:
            opened.append(row.run, row.at, row.event)
        runs = [row.run for run in opened.names() for row in opened.of_run(run)]
    with closing(sqlite3.connect(log)) as db:
        runs = [run for (run,) in db.execute("SELECT run FROM events ORDER BY id")]
    expected = {group["run"]: group for group in report(log.parent)["groups"]}
    with closing(sqlite3.connect(log)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for position, run in enumerate(runs, 1):
        copy = _copy(log, tmp_path / f"lost-{position}")
        damage, found = _damaged(copy.parent, f"DELETE FROM events WHERE id = {position}")
        assert position in {flaw["row"] for flaw in damage}
        assert {flaw["run"] for flaw in damage} == {run}
        groups = {group["run"]: group for group in found["groups"]}
        assert groups.keys() == expected.keys()
        for other, group in groups.items():
            if other == run:
                assert group["rows_lost"] >= 1
                assert group["total_high_usd"] is None
            else:
                assert json.dumps(group) == json.dumps(expected[other])


FOREIGN = {
    "moved to another run": f"UPDATE events SET run = '{OTHER}' WHERE run = '{RUN}' AND kind = 'Progressed'",
    "changed": f"UPDATE events SET at_us = at_us + 1 WHERE run = '{RUN}' AND kind = 'Progressed'",
    "twice": "INSERT INTO events (run, at_us, kind, body, checksum, number, link) SELECT run, at_us, kind, body,"
    f" checksum, number, link FROM events WHERE run = '{RUN}' AND kind = 'Progressed'",
}


@pytest.mark.parametrize("how", FOREIGN)
def test_a_foreign_row_concerns_its_run_alone(log: Path, how: str) -> None:
    expected = {group["run"]: group for group in report(log.parent)["groups"]}
    damage, found = _damaged(log.parent, FOREIGN[how])
    assert damage
    assert all(flaw["row"] for flaw in damage)
    groups = {group["run"]: group for group in found["groups"]}
    assert groups[OTHER] == expected[OTHER]
    assert groups[RUN]["total_usd"] == expected[RUN]["total_usd"]
    assert (groups[RUN]["rows_lost"] > 0) is (how != "twice")


def test_a_run_is_resumed_only_with_all_its_rows(log: Path) -> None:
    EventLog(log).close()
    changed(log, f"DELETE FROM events WHERE run = '{RUN}' AND kind = 'Rented'")
    with EventLog(log) as opened:
        assert opened.of_run(OTHER)
        with pytest.raises(BrokenLog, match=f"row 3 of run {RUN} is missing"):
            opened.of_run(RUN)
    assert group_of(spotctl("report", "cost", "--json").json, "train")["rows_lost"] >= 1
