"""Checkpoints that are signed with a key: what others have put in their place is not restored."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.node import CommandNode
from spotctl.agent.processes import MARK
from spotctl.agent.stored_checkpoints import StoredCheckpoints
from spotctl.agent.task import CheckpointPolicy, NodeTask

KEY = "CHECKPOINT_KEY"
COUNTS = 'read n <$SPOTCTL_CHECKPOINT_DIR/n || n=0; echo "$((n + 1)) $CHECKPOINT_KEY" >$SPOTCTL_CHECKPOINT_DIR/n'


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    usual = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, usual)


def run(folder: Path, path: str = "kept", key: str = "secret") -> str:
    """A start of a program that counts its starts in its checkpoint; returns what that holds then."""
    policy = CheckpointPolicy(str(folder / path), None, None, 1.0, 60.0, signed_with=KEY if key else "")
    task = NodeTask("r.1", run=COUNTS, checkpoint=policy)
    node = CommandNode(task, {MARK: str(folder / "machine"), "PATH": "/bin:/usr/bin", KEY: key})
    assert node.run() == 0
    return b"".join(FileBlobStore(folder / path).get(newest(folder, path, "0"))).decode().strip()


def newest(folder: Path, path: str, part: str) -> str:
    return [name for name in FileBlobStore(folder / path).list("node-0/") if name.endswith(f".{part}")][-1]


def test_a_signed_checkpoint_is_continued_and_the_program_does_not_get_the_key(tmp_path: Path) -> None:
    assert [run(tmp_path) for _ in range(3)] == ["1", "2", "3"]


def another_file(store: FileBlobStore, folder: Path) -> None:
    store.put(newest(folder, "kept", "0"), [b"7\n"])


def another_record(store: FileBlobStore, folder: Path) -> None:
    name = newest(folder, "kept", "record")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "number": values["number"] + 1}).encode()])


def no_signature(store: FileBlobStore, folder: Path) -> None:
    name = newest(folder, "kept", "record")
    values = json.loads(b"".join(store.get(name)))
    values.pop("signature")
    store.put(name, [json.dumps(values).encode()])


def no_text(store: FileBlobStore, folder: Path) -> None:
    name = newest(folder, "kept", "record")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "signature": "\u00e4"}).encode()])


@pytest.mark.parametrize("change", [another_file, another_record, no_signature, no_text])
def test_what_was_changed_is_not_restored(change: Callable[[FileBlobStore, Path], None], tmp_path: Path) -> None:
    """The one before it is; where none is left, the program is not started."""
    assert [run(tmp_path) for _ in range(2)] == ["1", "2"]
    change(FileBlobStore(tmp_path / "kept"), tmp_path)
    assert run(tmp_path) == "2"
    store = FileBlobStore(tmp_path / "kept")
    kept = newest(tmp_path, "kept", "record").removesuffix(".record")
    for name in store.list("node-0/"):
        if not name.startswith(kept):
            store.delete(name)
    change(store, tmp_path)
    with pytest.raises(BadCheckpoint, match=r"is not signed with CHECKPOINT_KEY|is not the file that was signed"):
        run(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"[1]", b"1", b"{", b"\xff", b"{}", b'{"files": 1}', b'{"files": ["../n"], "digests": {}}', b"null"],
)
def test_a_record_that_is_none_is_ignored(content: bytes, tmp_path: Path) -> None:
    assert [run(tmp_path, key="") for _ in range(2)] == ["1", "2"]
    FileBlobStore(tmp_path / "kept").put(newest(tmp_path, "kept", "record"), [content])
    with pytest.raises(BadCheckpoint, match="damaged"):
        StoredCheckpoints(str(tmp_path / "kept"), 0).latest()
    assert run(tmp_path, key="") == "2"


def test_no_file_is_restored_outside_of_its_folder(tmp_path: Path) -> None:
    run(tmp_path, key="")
    name = newest(tmp_path, "kept", "record")
    store = FileBlobStore(tmp_path / "kept")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "files": ["../outside"]}).encode()])
    with pytest.raises(BadCheckpoint, match="damaged"):
        run(tmp_path, key="")
    assert not list((tmp_path / "machine").rglob("outside"))


def test_an_old_checkpoint_under_a_newer_name_is_not_restored(tmp_path: Path) -> None:
    """It would stay the newest for ever."""
    run(tmp_path)
    store, old = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "kept", "record").removesuffix(".record")
    content = {name: b"".join(store.get(name)) for name in store.list(old)}
    for name, value in content.items():
        store.put(name.replace(old, "node-0/999999999999-r.1"), [value])
    run(tmp_path)
    run(tmp_path)
    kept = [name for name in store.list("node-0/") if name.endswith(".0") and "999999999999" not in name]
    assert b"".join(store.get(kept[-1])) == b"3 \n"


def test_a_checkpoint_of_another_place_or_key_is_not_restored(tmp_path: Path) -> None:
    run(tmp_path, "theirs")
    (tmp_path / "kept").mkdir()
    (tmp_path / "theirs" / "node-0").rename(tmp_path / "kept" / "node-0")
    with pytest.raises(BadCheckpoint, match="not signed"):
        run(tmp_path)
    run(tmp_path, "mine", key="other")
    with pytest.raises(BadCheckpoint, match="not signed"):
        run(tmp_path, "mine")


def test_without_a_key_a_signed_checkpoint_is_read_as_any_other(tmp_path: Path) -> None:
    assert [run(tmp_path), run(tmp_path, key="")] == ["1", "2"]
    with pytest.raises(BadCheckpoint, match="not signed"):
        run(tmp_path, key="another")


def test_an_empty_key_signs_nothing(tmp_path: Path) -> None:
    policy = CheckpointPolicy(str(tmp_path / "kept"), None, None, 1.0, 60.0, signed_with=KEY)
    node = CommandNode(NodeTask("r.1", run=COUNTS, checkpoint=policy), {MARK: str(tmp_path / "machine")})
    with pytest.raises(BadCheckpoint, match="CHECKPOINT_KEY, which signs checkpoints, is empty"):
        node.run()
