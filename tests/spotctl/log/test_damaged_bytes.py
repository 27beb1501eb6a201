"""A changed byte of the log: an error, a mark, or the right answer, and never another number.

`SPOTCTL_STORE_DAMAGE=all` changes every byte of the log; else a sample of them.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.log import ledger_reader
from spotctl.show.costs.accounts import gather
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.periods import By
from spotctl.show.runs.reading import latest_views
from spotctl.show.runs.status import status_answer
from tests.spotctl.log.test_loss import OTHER, ended
from tests.spotctl.log.test_present import interrupted
from tests.spotctl.show.costs.made import ALWAYS, NOW, write_log

SAMPLE = 150
MAX_BYTES = 64 << 10


FINAL = ("final_costs", "final_views")
"""Tables that answer in place of the rows of the ended run."""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of an ended and of an interrupted run, with what was kept when it was read."""
    monkeypatch.setattr(ledger_reader, "wall_us", lambda: NOW)
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(OTHER, "tune"), interrupted()], home)
    # Its first opening marks the log as one with rows.
    answers(home)
    return home / "log.sqlite"


def forget(log: Path) -> None:
    """Removes what is kept of ended runs."""
    with closing(sqlite3.connect(log)) as db, db:
        for table in FINAL:
            db.execute(f"DELETE FROM {table}")


def answers(home: Path) -> tuple[Any, Any]:
    """What status and report say; text for an error."""
    settings = Settings(home)
    return _status(settings), _report(settings)


def _status(settings: Settings) -> Any:  # noqa: ANN401 - JSON, or text
    try:
        read = latest_views(settings)
        return "damaged" if read.damage else status_answer(read.runs, read.lost)
    except SpotctlError as error:
        return str(error)


def _report(settings: Settings) -> Any:  # noqa: ANN401 - JSON, or text
    try:
        return as_json(gather(settings, (), ALWAYS, (By.RUN,), NOW))
    except SpotctlError as error:
        return str(error)


def places(size: int) -> Iterator[int]:
    assert size <= MAX_BYTES
    chance = random.Random(7)
    yield from (
        range(size)
        if os.environ.get("SPOTCTL_STORE_DAMAGE") == "all"
        else chance.sample(range(size), SAMPLE)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_kept", [False, True], ids=["nothing kept", "kept"])
def test_no_changed_byte_changes_a_number(log: Path, is_kept: bool) -> None:
    """A loss is said of the run that has it, and changes no figure of another."""
    if not is_kept:
        forget(log)
    with closing(sqlite3.connect(log)) as db:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole, chance, errors = log.read_bytes(), random.Random(8), 0
    expected = answers(log.parent)
    for at in places(len(whole)):
        _restore(log, whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        for answer, right in zip(answers(log.parent), expected, strict=True):
            errors += isinstance(answer, str)
            assert (
                isinstance(answer, str) or answer == right or _says_what_is_lost(answer, right)
            ), f"byte {at}"
    assert errors
    _restore(log, whole)
    assert answers(log.parent) == expected


def _restore(log: Path, content: bytes) -> None:
    for end in ("-wal", "-shm"):
        log.with_name(log.name + end).unlink(missing_ok=True)
    log.write_bytes(content)


def _says_what_is_lost(report: Any, right: Any) -> bool:  # noqa: ANN401 - JSON
    pairs = list(zip(report.get("groups", ()), right.get("groups", ()), strict=True))
    lossy = [group for group, expected in pairs if group != expected]
    says = all(group["rows_lost"] and group["total_high_usd"] is None for group in lossy)
    return bool(lossy) and says and report["total_high_usd"] is None and report["rows_lost"] > 0
