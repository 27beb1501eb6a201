"""The checkpoints of a command where they are stored: what is damaged, or of another name, is not restored."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.checkpoints.stored import StoredCheckpoints
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.container.processes import MARK
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.node import CommandNode

COUNTS = "read n <$SPOTCTL_CHECKPOINT_DIR/n || n=0; echo $((n + 1)) >$SPOTCTL_CHECKPOINT_DIR/n"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    usual = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, usual)


def run(folder: Path) -> str:
    """A start of a program that counts its starts in its checkpoint; returns what that holds then."""
    policy = CheckpointPolicy(str(folder / "kept"), None, None, 1.0, 60.0)
    task = NodeTask("r.1", run=COUNTS, checkpoint=policy)
    node = CommandNode(task, {MARK: str(folder / "machine"), "PATH": "/bin:/usr/bin"})
    assert node.run() == 0
    return b"".join(FileBlobStore(folder / "kept").get(newest(folder, "0"))).decode().strip()


def newest(folder: Path, part: str) -> str:
    return [name for name in FileBlobStore(folder / "kept").list("node-0/") if name.endswith(f".{part}")][-1]


def test_a_checkpoint_is_continued(tmp_path: Path) -> None:
    assert [run(tmp_path) for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "content",
    [b"[1]", b"1", b"{", b"\xff", b"{}", b'{"files": 1}', b'{"files": ["../n"], "digests": {}}', b"null"],
)
def test_a_record_that_is_none_is_ignored(content: bytes, tmp_path: Path) -> None:
    assert [run(tmp_path) for _ in range(2)] == ["1", "2"]
    FileBlobStore(tmp_path / "kept").put(newest(tmp_path, "record"), [content])
    with pytest.raises(BadCheckpoint, match="damaged"):
        StoredCheckpoints(str(tmp_path / "kept"), 0).latest()
    assert run(tmp_path) == "2"


def test_no_file_is_restored_outside_of_its_folder(tmp_path: Path) -> None:
    run(tmp_path)
    name = newest(tmp_path, "record")
    store = FileBlobStore(tmp_path / "kept")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "files": ["../outside"]}).encode()])
    with pytest.raises(BadCheckpoint, match="damaged"):
        run(tmp_path)
    assert not list((tmp_path / "machine").rglob("outside"))


def test_an_old_checkpoint_under_a_newer_name_is_not_restored(tmp_path: Path) -> None:
    """It would stay the newest for ever."""
    run(tmp_path)
    store, old = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "record").removesuffix(".record")
    content = {name: b"".join(store.get(name)) for name in store.list(old)}
    for name, value in content.items():
        store.put(name.replace(old, "node-0/999999999999-r.1"), [value])
    run(tmp_path)
    run(tmp_path)
    kept = [name for name in store.list("node-0/") if name.endswith(".0") and "999999999999" not in name]
    assert b"".join(store.get(kept[-1])) == b"3\n"


def test_a_checkpoint_that_an_earlier_version_has_signed_is_read_as_any_other(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    store, name = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "record")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "digests": {"n": "00"}, "signature": "00"}).encode()])
    assert run(tmp_path) == "2"
