"""The copy of a run's log: complete after every failure, and without what a superseded runner
added.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from agileml.runtime.blob_store import BlobBytes, FileBlobStore
from spotctl.log.events import Decided, OrderSettled
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.run.remote_runner import homes
from spotctl.run.remote_runner.homes import (
    LogCopier,
    LogCopy,
    add_missing,
    from_line,
    join_segments,
    to_line,
)

RUN = "job-1"


def row(number: int) -> LogRow:
    return LogRow(0, "", number, OrderSettled(number))


def rows(*numbers: int) -> list[LogRow]:
    return [row(number) for number in numbers]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


def write(path: Path, *numbers: int) -> None:
    with EventLog(path) as log:
        for number in numbers:
            log.append(RUN, number, OrderSettled(number))
            log.append("another-run", number, Decided((), "something else"))


class Flaky(FileBlobStore):
    """A store that cannot be written to while `fails`."""

    fails = False

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        if self.fails:
            raise OSError("no answer")
        super().put(name, pieces)


def test_it_grows_with_the_log(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "SEGMENT_ROWS", 3)
    store = Flaky(tmp_path / "store")
    copier, copy = LogCopier(store, path, RUN, 1, 0), LogCopy(store)
    for count in range(1, 9):
        write(path, count)
        store.fails = count in (2, 3, 5)
        if store.fails:
            with pytest.raises(OSError, match="no answer"):
                copier.copy()
        else:
            copier.copy()
            assert copy.rows() == rows(*range(1, count + 1))
    assert store.list() == ["log/000001-00000000", "log/000001-00000003", "log/000001-00000006"]
    before = {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in store.list()}
    copier.copy()
    assert before == {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in store.list()}


def test_a_successor_goes_on_where_the_copy_ends(path: Path, tmp_path: Path) -> None:
    store = FileBlobStore(tmp_path / "store")
    write(path, 1, 2)
    LogCopier(store, path, RUN, 1, 0).copy()
    write(path, 3)
    start = len(LogCopy(store).rows())
    LogCopier(store, path, RUN, 2, start).copy()
    assert LogCopy(store).rows() == rows(1, 2, 3)


def test_what_a_superseded_runner_adds_does_not_count() -> None:
    assert join_segments({(1, 0): rows(1, 2, 3, 4), (2, 2): rows(30)}) == rows(1, 2, 30)
    assert join_segments(
        {(1, 0): rows(1, 2), (1, 2): rows(3), (2, 2): rows(30), (3, 3): rows(40)}
    ) == rows(1, 2, 30, 40)


def test_rows_after_a_gap_do_not_count() -> None:
    assert join_segments({(1, 0): rows(1), (1, 2): rows(3)}) == rows(1)
    assert join_segments({}) == []


def test_another_log_is_completed_once(path: Path) -> None:
    with EventLog(path) as log:
        assert add_missing(log, RUN, rows(1, 2)) == 2
        assert add_missing(log, RUN, rows(1, 2, 3)) == 1
        assert add_missing(log, RUN, rows(1)) == 0
        assert [one.event for one in log.of_run(RUN)] == [one.event for one in rows(1, 2, 3)]


def test_events_survive_as_they_are() -> None:
    whole = LogRow(0, "", 7, Decided(("buy 2",), "é\n"))
    assert from_line(to_line(whole)) == whole
