"""A damaged event log: machines are still found and returned, nothing is bought, and what can be
read is kept.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.agent.container.payload import Payload
from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.files.job.reader import load, written
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG, installation_id
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from tests.spotctl.approvals import Approved
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.leaving import kill_all, running
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command
from tests.waiting import eventually

RUN, OTHER = "small-000001", "other-000001"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """The log of a home with a finished run, and one that was interrupted and holds two
    machines."""
    home = tmp_path / "home"
    provider = LocalProvider(home / "local", markets.market, LocalSettings(unwarned=0.0))
    provider.begin(markets.BEGIN, 1.0)
    order = markets.order("t", markets.CLOSES, 2, payload=Payload("sleeper", ("sleep", "1000")))
    machines = provider.create(
        replace(
            order, tags={RUN_TAG: RUN, INTENT_TAG: "1", INSTALLATION_TAG: installation_id(home)}
        )
    )
    spec, at = written(load(command(tmp_path, "sleep 1000"))), markets.BEGIN
    granted = tuple(ev.Granted(one.id, one.started) for one in machines)
    path = home / "log.sqlite"
    with EventLog(path) as opened:
        opened.append(
            OTHER, at, ev.RunBegan("other", "local", {**spec, "name": "other"}, "/nowhere", 0)
        )
        opened.append(OTHER, at, ev.RunEnded("done", "", 0, {"spent": 0}))
        opened.append(RUN, at, ev.RunBegan("small", "local", spec, "/nowhere", 0))
        opened.append(
            RUN,
            at,
            ev.RentIntended(1, order.market, 2, order.bid, 10**9, 1.0, False, markets.CLOSES),
        )
        opened.append(RUN, at, ev.Rented(1, granted))
        for one in granted:
            opened.append(RUN, at + 1, ev.MachineRan(one.id))
    yield path
    kill_all(tmp_path)


def _row(path: Path, where: str) -> None:
    """One row's body is no JSON any more."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TRIGGER no_update")
        db.execute(f"UPDATE events SET body = 'x' WHERE {where}")


def _header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(16))


def _truncated(path: Path) -> None:
    os.truncate(path, 3000)


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _removed(path: Path) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "the beginning of another run": lambda path: _row(
        path, "kind = 'RunBegan' AND run LIKE 'other%'"
    ),
    "its own beginning": lambda path: _row(path, "kind = 'RunBegan' AND run LIKE 'small%'"),
    "its machines": lambda path: _row(path, "kind = 'Rented'"),
    "header": _header,
    "truncated": _truncated,
    "emptied": _emptied,
    "removed": _removed,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_machines_are_shown_and_returned_whatever_the_damage(
    tmp_path: Path, log: Path, damage: str
) -> None:
    DAMAGES[damage](log)
    shown = spotctl("status", "--json")
    assert shown.code == 1
    assert shown.json["log_damage"]
    assert {one["run"] for one in shown.json["shown"]} == {RUN}
    assert len(shown.json["shown"]) == 2
    checked = spotctl("log", "check")
    assert checked.code == 1
    words = ("stop", "--all") if damage == "header" else ("stop", "small")
    down = spotctl(*words)
    assert (down.code, down.err.splitlines()[-1]) == (
        1,
        "all machines that the providers showed were returned",
    )
    eventually(lambda: not running(tmp_path))


@pytest.mark.parametrize("damage", ["truncated", "emptied", "its own beginning"])
def test_gc_finds_machines_of_runs_that_the_log_has_lost(
    tmp_path: Path, log: Path, damage: str
) -> None:
    DAMAGES[damage](log)
    assert spotctl("gc", "--yes").code == 0
    eventually(lambda: not running(tmp_path))


@pytest.mark.parametrize("damage", ["emptied", "removed", "header", "its own beginning"])
def test_nothing_is_launched_on_a_damaged_log(
    tmp_path: Path, log: Path, damage: str, approved: Approved
) -> None:
    DAMAGES[damage](log)
    refused = spotctl("launch", command(tmp_path, "true"), "--yes")
    approved(refused)


def test_a_run_whose_beginning_was_lost_is_ended_and_its_machines_are_returned(
    tmp_path: Path, log: Path
) -> None:
    _row(log, "kind = 'RunBegan' AND run LIKE 'small%'")
    assert spotctl("log", "repair").code == 0
    assert [job["name"] for job in spotctl("status", "--json").json["jobs"]] == ["other", "small"]
    assert spotctl("stop", "small").code == 1
    eventually(lambda: not running(tmp_path))
    small = spotctl("status", "--json").json["jobs"][1]
    assert (small["state"], small["machines"], small["spent_high_usd"]) == ("failed", [], None)


@pytest.mark.usefixtures("log")
def test_a_sound_log_is_said_to_be_sound() -> None:
    checked = spotctl("log", "check", "--json")
    assert (checked.code, checked.json) == (0, {"rows": 7, "runs": 2, "damage": [], "dropped": []})
    status = spotctl("status", "--json")
    assert (status.code, "log_damage" in status.json) == (0, False)


def test_repair_keeps_the_readable_rows_and_the_damaged_file(tmp_path: Path, log: Path) -> None:
    """The interrupted run lost its machines' row: it may only end now, and the provider's list
    shows its machines.
    """
    _row(log, "kind = 'Rented'")
    repaired = spotctl("log", "repair", "--json")
    assert repaired.code == 0
    assert [one["row"] for one in repaired.json["damage"]] == [5]
    assert len(list(log.parent.glob("log.sqlite.damaged-*Z"))) == 1
    assert spotctl("log", "check").code == 0
    down = spotctl("stop", "small")
    assert down.code == 1
    assert "rows of the run's event log were damaged" in down.out
    eventually(lambda: not running(tmp_path))
    assert [one["state"] for one in spotctl("status", "--json").json["jobs"]] == ["done", "failed"]


def test_repair_restores_a_header(log: Path) -> None:
    _header(log)
    assert spotctl("log", "repair", "--json").json["rows"] == 7
    assert spotctl("log", "check").code == 0


@pytest.mark.parametrize("damage", ["emptied", "removed"])
def test_a_lost_log_can_be_given_up_and_is_still_said_to_be_lost(log: Path, damage: str) -> None:
    DAMAGES[damage](log)
    assert spotctl("log", "repair", "--json").json["rows"] == 0
    (kept,) = log.parent.glob("log.sqlite.damaged-*Z")
    for words in (("status",), ("report", "cost"), ("status", "--watch")):
        assert (
            f"the event log lost all its runs, and no run has started since; the damaged log is "
            f"kept as {kept}" in (spotctl(*words).err)
        )
