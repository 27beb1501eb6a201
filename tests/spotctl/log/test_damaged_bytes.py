"""A changed byte of the log: an error, a mark, or the right answer, and never another number.

`SPOTCTL_STORE_DAMAGE=all` changes every byte of the log; else a sample of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.log import present
from spotctl.log.log_reader import digest_of
from spotctl.log.log_row import StoredRow
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.gather import gather
from spotctl.show.costs.grouping import By
from spotctl.show.costs.periods import ALWAYS
from spotctl.show.runs.latest import latest_views
from spotctl.show.runs.status import status_answer
from tests.spotctl.log.test_losses import OTHER, ended
from tests.spotctl.log.test_present import interrupted
from tests.spotctl.show.costs.made import NOW, write_log

SAMPLE = 150
MOST_BYTES = 40 << 10


KEPT = ("log.costs", "log.status")
"""Files that answer in place of the rows of the ended run."""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of an ended and of an interrupted run, with what was kept when it was read."""
    monkeypatch.setattr(present, "wall_us", lambda: NOW)
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(OTHER, "tune"), interrupted()], home)
    # Its first opening marks the log as one with rows.
    answers(home)
    assert all((home / name).exists() for name in KEPT)
    return home / "log.sqlite"


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
    assert size <= MOST_BYTES
    chance = random.Random(7)
    yield from range(size) if os.environ.get("SPOTCTL_STORE_DAMAGE") == "all" else chance.sample(range(size), SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kept", [(), KEPT], ids=["nothing kept", "kept"])
def test_no_changed_byte_changes_a_number(log: Path, kept: Sequence[str]) -> None:
    assert _errors_of_changes(log, "log.sqlite", kept)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KEPT)
def test_no_changed_byte_of_what_is_kept_changes_a_number(log: Path, name: str) -> None:
    assert not _errors_of_changes(log, name, KEPT)


def _errors_of_changes(log: Path, name: str, kept: Sequence[str]) -> int:
    """How many answers are errors if one byte of a file is changed. All others are right."""
    changed, chance, errors = log.with_name(name), random.Random(8), 0
    expected, whole = answers(log.parent), changed.read_bytes()
    files = {other: log.with_name(other).read_bytes() for other in ("log.sqlite", *KEPT)}
    for at in places(len(whole)):
        _restore(log.parent, {other: files[other] for other in ("log.sqlite", *kept)})
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        for answer, right in zip(answers(log.parent), expected, strict=True):
            errors += isinstance(answer, str)
            assert isinstance(answer, str) or answer == right, f"byte {at}"
    _restore(log.parent, files)
    assert answers(log.parent) == expected
    return errors


def _restore(home: Path, files: Mapping[str, bytes]) -> None:
    for name in ("log.sqlite-wal", "log.sqlite-shm", *KEPT):
        (home / name).unlink(missing_ok=True)
    for name, content in files.items():
        (home / name).write_bytes(content)


def test_a_text_that_became_a_number_has_a_digest() -> None:
    """A byte of SQLite's own says of what type a value is."""
    rows = [(1, "run", 7, "RunBegan", "{}", 0)]
    assert digest_of([cast("StoredRow", (1, "run", 7, 5, "{}", 0))]) != digest_of(rows)
