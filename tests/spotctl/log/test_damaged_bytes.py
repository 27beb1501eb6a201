"""A changed byte of the log: an error, a mark, or the right answer, and never another number.

`SPOTCTL_STORE_DAMAGE=all` changes every byte of the log; else a sample of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.log import present
from spotctl.log.statuses import read_log, statuses
from spotctl.show.costs import accounts
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.gather import gather
from spotctl.show.costs.grouping import By
from spotctl.show.costs.period import ALWAYS
from spotctl.show.runs.tables import status_answer
from tests.spotctl.log.test_losses import OTHER, ended
from tests.spotctl.log.test_present import interrupted
from tests.spotctl.show.costs.made import NOW, write_log

SAMPLE = 150
MOST_BYTES = 40 << 10


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of an ended and of an interrupted run."""
    monkeypatch.setattr(present, "wall_us", lambda: NOW)
    # Kept accounts would answer in place of the rows.
    monkeypatch.setattr(accounts, "MIN_FREE_BYTES", 1 << 62)
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(OTHER, "tune"), interrupted()], home)
    # Its first opening marks the log as one with rows.
    answers(home)
    return home / "log.sqlite"


def answers(home: Path) -> tuple[Any, Any]:
    """What status and report say; text for an error."""
    settings = Settings(home)
    return _status(settings), _report(settings)


def _status(settings: Settings) -> Any:  # noqa: ANN401 - JSON, or text
    try:
        read = read_log(settings)
        return "damaged" if read.damage else status_answer(statuses(settings, read), read.lost)
    except SpotctlError as error:
        return str(error)


def _report(settings: Settings) -> Any:  # noqa: ANN401 - JSON, or text
    try:
        return as_json(gather(settings, (), ALWAYS, (By.RUN,), NOW))
    except SpotctlError as error:
        return str(error)


def places(size: int) -> Iterator[int]:
    assert size <= MOST_BYTES
    chance = random.Random(7)
    yield from range(size) if os.environ.get("SPOTCTL_STORE_DAMAGE") == "all" else chance.sample(range(size), SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_changed_byte_changes_a_number(log: Path) -> None:
    expected, whole, chance = answers(log.parent), log.read_bytes(), random.Random(8)
    errors = 0
    for at in places(len(whole)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        for end in ("-wal", "-shm"):
            log.with_name(log.name + end).unlink(missing_ok=True)
        for answer, right in zip(answers(log.parent), expected, strict=True):
            errors += isinstance(answer, str)
            assert isinstance(answer, str) or answer == right, f"byte {at}"
    log.write_bytes(whole)
    assert answers(log.parent) == expected
    assert errors
