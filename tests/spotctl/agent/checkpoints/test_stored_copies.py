"""A command's checkpoints, copied to storage and back; its data and outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.local import CheckpointPlanReader
from spotctl.agent.checkpoints.stored import (
    StoredCheckpoints,
    discard_checkpoints,
    have_ended,
    note_ended,
    note_finished,
)
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.data.transfer import deliver, local_copy
from spotctl.agent.errors import BadCheckpoint, TransferFailed


class Program:
    """One start of a program on a machine of its own, and the copying of its checkpoints."""

    def __init__(
        self,
        root: Path,
        life: int,
        rank: int = 0,
        every: float | None = None,
        *,
        of_first: bool = False,
    ) -> None:
        self.folder, self.plan = root / f"machine-{life}-{rank}", root / f"plan-{life}-{rank}.json"
        policy = CheckpointPolicy(str(root / "storage"), every, 800.0, 1.0, 3600.0, of_first)
        self.sync = CheckpointSync(
            policy, NodeTask(f"run.{life}", rank), self.folder, self.plan, self.write_seconds
        )
        self.seconds: float | None = None
        self.restored = self.sync.restore()

    def write_seconds(self) -> float | None:
        return self.seconds

    def save(self, text: str, name: str = "state") -> None:
        part = self.folder / f".{name}"
        part.write_text(text)
        part.rename(self.folder / name)

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}

    @property
    def every(self) -> float | None:
        return CheckpointPlanReader(self.plan).every()


def test_an_unchanged_checkpoint_is_copied_and_restored_on_the_next_machine(tmp_path: Path) -> None:
    first = Program(tmp_path, 1)
    assert (first.restored, first.sync.look(), first.sync.last()) == (None, False, False)
    first.save("one")
    assert [first.sync.look() for _ in range(3)] == [False, True, False], (
        "seen, copied, nothing new"
    )
    first.save("two")
    assert not first.sync.look()
    first.save("three")
    assert not first.sync.look(), "it has changed again"
    assert first.sync.last()
    # The machine is taken while its last copy is being written.
    begun = tmp_path / "storage" / "node-0" / "000001000003-run.1.0"
    begun.write_text("half")
    second = Program(tmp_path, 2)
    assert second.restored is not None
    assert second.files() == {"state": "three"}
    assert not second.sync.last(), "nothing is new"
    second.save("four")
    assert second.sync.last()
    assert not begun.exists()
    # A copy of the first life that arrives late is not the newest.
    first.save("late")
    assert first.sync.last()
    assert Program(tmp_path, 3).files() == {"state": "four"}
    found = StoredCheckpoints(str(tmp_path / "storage"), 0).latest()
    assert found is not None
    assert (found.by, found.size) == ("run.2", 4)


def test_where_the_number_of_nodes_changes_all_get_the_checkpoint_of_the_first(
    tmp_path: Path,
) -> None:
    first, second = (Program(tmp_path, 1, rank, of_first=True) for rank in (0, 1))
    first.save("one")
    second.save("of two nodes")
    assert (first.sync.last(), second.sync.last()) == (True, False)
    alone = Program(tmp_path, 2, of_first=True)
    alone.save("two")
    assert alone.sync.last()
    assert Program(tmp_path, 3, 1, of_first=True).files() == {"state": "two"}


def test_files_being_written_are_left_out_and_a_changing_folder_is_copied_when_overdue(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, 1, every=1e-9)
    (program.folder / ".half").write_text("not yet")
    assert not program.sync.last()
    copied = []
    for i in range(3):
        program.save(str(i))
        (program.folder / ".half").write_text("not yet")
        copied.append(program.sync.look())
    assert copied == [True] * 3
    assert Program(tmp_path, 2).files() == {"state": "2"}


def test_a_node_without_a_checkpoint_gets_the_first_nodes(tmp_path: Path) -> None:
    first = Program(tmp_path, 1, 0)
    first.save("of the first")
    first.sync.last()
    second = Program(tmp_path, 1, 1)
    assert second.files() == {"state": "of the first"}
    second.save("of the second")
    second.sync.last()
    assert Program(tmp_path, 2, 1).files() == {"state": "of the second"}
    assert Program(tmp_path, 2, 0).files() == {"state": "of the first"}


def test_a_damaged_checkpoint_is_skipped_and_nothing_starts_from_scratch_if_all_are(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, 1)
    for text in ("one", "two"):
        program.save(text)
        program.sync.last()
    newest, older = sorted((tmp_path / "storage" / "node-0").glob("*.0"), reverse=True)
    newest.write_text("damaged")
    assert Program(tmp_path, 2).files() == {"state": "one"}
    older.write_text("damaged")
    with pytest.raises(BadCheckpoint, match="storage/node-0: none of 2 checkpoints can be used"):
        Program(tmp_path, 3)


def test_a_finished_job_or_a_fresh_start_discards_checkpoints(tmp_path: Path) -> None:
    path = str(tmp_path / "storage")
    note_finished(path, "run")
    assert not Path(path).exists(), "nothing was kept"
    for fresh, finished, left in ((False, False, True), (False, True, False), (True, False, False)):
        program = Program(tmp_path, 1)
        program.save("one")
        program.sync.last()
        if finished:
            note_finished(path, "run")
        discard_checkpoints(path, fresh=fresh)
        assert (StoredCheckpoints(path, 0).latest() is not None) is left
        discard_checkpoints(path, fresh=True)
        program.folder.joinpath("state").unlink()


def test_marks_of_starts_that_have_ended_are_discarded_with_the_next_run(tmp_path: Path) -> None:
    path = str(tmp_path / "storage")
    assert not have_ended(path, "run.1", 1)
    note_ended(path, "run.1", 1)
    assert (
        have_ended(path, "run.1", 1),
        have_ended(path, "run.1", 2),
        have_ended(path, "run.10", 1),
    ) == (
        True,
        False,
        False,
    )
    discard_checkpoints(path, fresh=False)
    assert not have_ended(path, "run.1", 1)


def test_data_is_copied_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "part").write_text("one")
    (tmp_path / "alone.csv").write_text("1,2")
    cache = tmp_path / "cache"
    there = local_copy(str(tmp_path / "data"), cache)
    assert (there.name, (there / "deep" / "part").read_text()) == ("data", "one")
    stamp = (there / "deep" / "part").stat().st_ino
    assert local_copy(str(tmp_path / "data"), cache) == there
    assert (there / "deep" / "part").stat().st_ino == stamp, "nothing was copied again"
    (tmp_path / "data" / "deep" / "part").write_text("another")
    again = local_copy(str(tmp_path / "data"), cache)
    assert again != there
    assert (again / "deep" / "part").read_text() == "another"
    assert local_copy(str(tmp_path / "alone.csv"), cache).read_text() == "1,2"
    with pytest.raises(TransferFailed, match="nowhere: there is no such file or folder"):
        local_copy(str(tmp_path / "nowhere"), cache)


def test_outputs_replace_existing_files_completely(tmp_path: Path) -> None:
    (tmp_path / "left" / "deep").mkdir(parents=True)
    (tmp_path / "left" / "deep" / "model").write_text("new")
    (tmp_path / "wanted" / "deep").mkdir(parents=True)
    (tmp_path / "wanted" / "deep" / "model").write_text("old")
    (tmp_path / "wanted" / "other").write_text("stays")
    deliver(tmp_path / "left", str(tmp_path / "wanted"))
    found = {
        path.name: path.read_text() for path in (tmp_path / "wanted").rglob("*") if path.is_file()
    }
    assert found == {"model": "new", "other": "stays"}
    with pytest.raises(TransferFailed, match="cannot be written"):
        deliver(tmp_path / "left", str(tmp_path / "wanted" / "other"))


@pytest.mark.parametrize(
    "error", [StoreRefused("the store answers 503"), OSError(5, "the store answers 503")]
)
@pytest.mark.parametrize("call", ["list", "get"])
def test_a_store_that_does_not_answer_is_an_error_of_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: OSError
) -> None:
    """Launchers look again later, and nodes end with the status that says so."""
    first = Program(tmp_path, 1)
    first.save("one")
    assert [first.sync.look() for _ in range(2)] == [False, True]
    stored = StoredCheckpoints(str(tmp_path / "storage"), 0)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(FileBlobStore, call, refuse)
    for ask in (stored.latest, lambda: stored.restore(tmp_path / "new")):
        with pytest.raises(BadCheckpoint, match=r"checkpoints at .*storage: the store answers 503"):
            ask()
