"""Places of a job's folder that outlive its machine: what is copied of them, and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.kept import KeptPlaces
from spotctl.agent.checkpoints.stored import StoredCheckpoints
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.container.processes import MARK

HOLDS = """
import sys
file = open(sys.argv[1], sys.argv[2])
file.write("half"); file.flush(); print("open", flush=True)
sys.stdin.readline()
file.write(" and half"); file.close(); print("closed", flush=True)
"""


KEEPS_OPEN = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as database:
    database.execute("CREATE TABLE steps (step)")
database.commit()
for step in range(2):
    database.execute("INSERT INTO steps VALUES (?)", (step,))
    database.execute("PRAGMA cache_size = 1")
    print("begun", flush=True); sys.stdin.readline()
    database.commit()
    print("committed", flush=True); sys.stdin.readline()
"""


class Machine:
    """A machine with a job's folder, of which some places are kept."""

    def __init__(
        self, root: Path, life: int, keep: Sequence[str], rank: int = 0, every: float = 900.0
    ) -> None:
        self.root, self.work = root / f"machine-{life}-{rank}", root / f"machine-{life}-{rank}/job"
        self.work.mkdir(parents=True)
        policy = CheckpointPolicy(str(root / "storage"), every, 800.0, 1.0, 3600.0, keep=keep)
        self.sync = CheckpointSync(
            policy,
            NodeTask(f"run.{life}", rank),
            self.root / "checkpoint",
            self.root / "plan.json",
            kept=KeptPlaces(keep, self.work, self.root),
        )
        self.restored = self.sync.restore()

    def write(self, name: str, text: str) -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def files(self) -> dict[str, str]:
        found = (path for path in self.work.rglob("*") if path.is_file())
        return {path.relative_to(self.work).as_posix(): path.read_text() for path in found}

    def holds(self, name: str, mode: str = "w") -> subprocess.Popen[str]:
        """A process of the machine that has written half of a file."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, str(self.work / name), mode],
            env={MARK: str(self.root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process


def finish(process: subprocess.Popen[str]) -> None:
    assert process.communicate("\n")[0] == "closed\n"


def test_the_next_machine_has_the_newest_content_of_files_folders_and_patterns(
    tmp_path: Path,
) -> None:
    keep = ("checkpoints/", "model.npz", "epoch_*.pt")
    first = Machine(tmp_path, 1, keep)
    for name in ("checkpoints/run/latest", "model.npz", "epoch_1.pt", "epoch_2.pt", "train.py"):
        first.write(name, f"{name} of the first")
    (first.sync._folder / "own").write_text("own")
    assert [first.sync.look() for _ in range(3)] == [False, True, False]
    second = Machine(tmp_path, 2, keep)
    assert second.restored is not None
    assert second.files() == {
        name: f"{name} of the first"
        for name in ("checkpoints/run/latest", "model.npz", "epoch_1.pt", "epoch_2.pt")
    }
    assert [path.name for path in second.sync._folder.iterdir()] == ["own"]
    assert not second.sync.last(), "nothing is new"


def test_what_an_earlier_start_left_on_the_machine_gives_way_to_the_copy(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/a", "one")
    assert machine.sync.last()
    machine.write("ckpt/a", "half of tw")
    machine.write("ckpt/b", "left over")
    machine.sync.restore()
    assert machine.files() == {"ckpt/a": "one"}


def test_without_a_copy_the_jobs_own_files_stay(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/pretrained", "of the job")
    machine.sync.restore()
    assert machine.files() == {"ckpt/pretrained": "of the job"}


def test_a_file_that_is_open_for_writing_is_not_copied_and_leaves_the_copy_before(
    tmp_path: Path,
) -> None:
    first = Machine(tmp_path, 1, ("ckpt",), every=1e-9)
    first.write("ckpt/state", "whole")
    first.write("ckpt/step", "1")
    assert first.sync.last()
    process = first.holds("ckpt/state")
    # Nothing else is new, and then a copy is overdue.
    assert not first.sync.look()
    assert not first.sync.look()
    first.write("ckpt/step", "2")
    assert first.sync.look()
    assert Machine(tmp_path, 2, ("ckpt",)).files() == {"ckpt/state": "whole", "ckpt/step": "2"}
    finish(process)
    assert first.sync.last()
    assert Machine(tmp_path, 3, ("ckpt",)).files()["ckpt/state"] == "half and half"


@pytest.mark.parametrize("rank", [0, 1], ids=["its own copy", "the copy of the first node"])
def test_what_the_next_machine_writes_over_stays_until_it_is_whole(
    tmp_path: Path, rank: int
) -> None:
    first = Machine(tmp_path, 1, ("ckpt",))
    first.write("ckpt/state", "whole")
    assert first.sync.last()
    second = Machine(tmp_path, 2, ("ckpt",), rank, every=1e-9)
    process = second.holds("ckpt/state")
    second.write("ckpt/best", "new")
    second.sync.look()
    assert Machine(tmp_path, 3, ("ckpt",), rank).files()["ckpt/state"] == "whole"
    finish(process)
    assert second.sync.last()
    files = {"ckpt/state": "half and half", "ckpt/best": "new"}
    assert Machine(tmp_path, 4, ("ckpt",), rank).files() == files


def test_a_save_of_several_files_waits_until_the_last_is_closed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/net", "new")
    process = machine.holds("ckpt/optimizer")
    assert [machine.sync.look() for _ in range(3)] == [False] * 3
    finish(process)
    assert [machine.sync.look() for _ in range(2)] == [False, True]


def test_a_log_in_the_same_folder_holds_nothing_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/state", "whole")
    process = machine.holds("ckpt/train.log", "a")
    copied = []
    for line in range(3):
        machine.write("ckpt/metrics.csv", "line\n" * line)
        copied.append(machine.sync.look())
    assert copied == [False, True, False]
    assert Machine(tmp_path, 2, ("ckpt",)).files()["ckpt/state"] == "whole"
    finish(process)


def test_an_archive_that_a_kill_cut_short_never_replaces_a_whole_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("model.npz",))
    path = machine.work / "model.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w", "weights" * 100)
    whole = path.read_bytes()
    assert machine.sync.last()
    path.write_bytes(whole[: len(whole) // 2])
    assert [machine.sync.look() for _ in range(3)] == [False] * 3
    assert not machine.sync.last()
    again = Machine(tmp_path, 2, ("model.npz",))
    assert (again.work / "model.npz").read_bytes() == whole


def test_only_changed_files_are_stored_and_what_records_name_is_never_removed(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/large", "large")
    for step in range(5):
        machine.write("ckpt/step", str(step))
        assert machine.sync.last()
    store = FileBlobStore(tmp_path / "storage")
    names = store.list("node-0/")
    contents = [b"".join(store.get(name)) for name in names if not name.endswith(".record")]
    assert sorted(contents) == [b"3", b"4", b"large"]
    store.put(max(name for name in names if name.endswith(".record")), [b"damaged"])
    assert Machine(tmp_path, 2, ("ckpt",)).files() == {"ckpt/large": "large", "ckpt/step": "3"}


def test_folders_of_steps_that_go_while_they_are_copied_are_still_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, 1, ("runs",))
    for step in (1, 2):
        machine.write(f"runs/step-{step}/state", str(step))
    usual = StoredCheckpoints.put_files

    def rotating(stored: StoredCheckpoints, *given: object) -> list[str]:
        # While 10 GB are stored, the program makes room for its next step.
        shutil.rmtree(machine.work / "runs/step-1", ignore_errors=True)
        machine.write("runs/step-3/state", "3")
        return usual(stored, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredCheckpoints, "put_files", rotating)
    assert machine.sync.last()
    assert Machine(tmp_path, 2, ("runs",)).files() == {
        "runs/step-1/state": "1",
        "runs/step-2/state": "2",
    }


def test_a_file_that_is_rewritten_while_it_is_stored_is_copied_first_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, 1, ("state",))
    machine.write("state", "one")
    usual, texts = StoredCheckpoints.put_files, iter(("two!", "three", "four!!"))

    def rewriting(stored: StoredCheckpoints, *given: object) -> list[str]:
        blobs = usual(stored, *given)  # type: ignore[arg-type]
        machine.write("state", next(texts))
        return blobs

    monkeypatch.setattr(StoredCheckpoints, "put_files", rewriting)
    assert [machine.sync.last() for _ in range(2)] == [False, True]
    assert Machine(tmp_path, 2, ("state",)).files() == {"state": "two!"}


def test_a_database_that_stays_open_is_copied_between_its_transactions(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("state.db",))
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPS_OPEN, str(machine.work / "state.db")],
        env={MARK: str(machine.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    copied = []
    for _ in range(4):
        # Begun, committed, begun, committed.
        process.stdout.readline()
        machine.sync.look()
        copied.append(machine.sync.look())
        process.stdin.write("\n")
        process.stdin.flush()
    process.communicate()
    assert copied == [False, True, False, True]


def test_ranks_of_a_machine_that_write_one_name_are_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("ckpt",))
    machine.write("ckpt/state", "")
    ranks = [machine.holds("ckpt/state") for _ in range(2)]
    assert [machine.sync.look() for _ in range(2)] == [False] * 2
    finish(ranks[0])
    assert [machine.sync.look() for _ in range(2)] == [False] * 2
    finish(ranks[1])
    assert [machine.sync.look() for _ in range(2)][-1]


def test_each_node_keeps_its_own_and_one_without_gets_the_first_nodes(tmp_path: Path) -> None:
    first, second = (Machine(tmp_path, 1, ("ckpt",), rank) for rank in (0, 1))
    first.write("ckpt/state", "of the first")
    assert first.sync.last()
    assert not second.sync.last()
    again = Machine(tmp_path, 2, ("ckpt",), 1)
    assert again.files() == {"ckpt/state": "of the first"}
    again.write("ckpt/state", "of the second")
    assert again.sync.last()
    assert Machine(tmp_path, 3, ("ckpt",), 1).files() == {"ckpt/state": "of the second"}


def test_links_to_the_newest_folder_are_restored_and_none_leads_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, ("runs", "outside"))
    machine.write("runs/step-1/state", "1")
    (machine.work / "runs/latest").symlink_to("step-1")
    (machine.work / "runs/usr").symlink_to("/usr")
    (machine.work / "outside").symlink_to("/usr")
    assert machine.sync.last()
    after = Machine(tmp_path, 2, ("runs", "outside"))
    assert str((after.work / "runs/latest").readlink()) == "step-1"
    assert sorted(path.name for path in after.work.rglob("*")) == [
        "latest",
        "runs",
        "state",
        "step-1",
    ]


def test_a_record_cannot_write_to_places_that_are_not_kept(tmp_path: Path) -> None:
    first = Machine(tmp_path, 1, ("ckpt", "train.py"))
    first.write("ckpt/state", "1")
    first.write("train.py", "planted")
    assert first.sync.last()
    assert Machine(tmp_path, 2, ("ckpt",)).files() == {"ckpt/state": "1"}


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(("a", "b/c", "b/d")), st.text("xyz", max_size=3)), max_size=8
    )
)
def test_the_next_machine_has_what_the_last_copy_had(writes: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), 1, ("a", "b"))
        copied = dict[str, str]()
        for number, (name, text) in enumerate(writes):
            machine.write(name, text)
            os.utime(machine.work / name, ns=(number, number))
            if number % 2 and machine.sync.last():
                copied = machine.files()
        assert Machine(Path(folder), 2, ("a", "b")).files() == copied


def test_a_folder_of_a_step_is_copied_once_it_has_what_the_one_before_has(tmp_path: Path) -> None:
    """A copy is overdue all the time, and a start that finds half of the newest step would fail."""
    machine = Machine(tmp_path, 1, ["out/"], every=0.001)

    def save(step: int, *names: str) -> None:
        for name in names:
            machine.write(f"out/checkpoint-{step}/{name}", f"{name} of {step}")

    def on_the_next(life: int) -> set[str]:
        return {name.partition("/")[2] for name in Machine(tmp_path, life, ["out/"]).files()}

    whole = ("model.pt", "rng_state_0.pth", "state.json")
    save(10, *whole)
    machine.sync.look()
    machine.sync.look()
    of_ten = {f"checkpoint-10/{name}" for name in whole}
    assert on_the_next(2) == of_ten
    save(20, "model.pt")
    machine.write("out/train.log", "saving")
    machine.sync.look()
    machine.sync.look()
    machine.sync.last()
    assert on_the_next(3) - {"train.log"} == of_ten
    # What stays so is what this step has.
    for path in machine.work.glob("out/checkpoint-*/*"):
        os.utime(path, (int(path.parent.name[-2:]),) * 2)
    machine.sync.look()
    machine.sync.look()
    assert "checkpoint-20/model.pt" in on_the_next(4)
    save(30, *whole)
    machine.sync.look()
    machine.sync.look()
    assert {f"checkpoint-30/{name}" for name in whole} <= on_the_next(5)
