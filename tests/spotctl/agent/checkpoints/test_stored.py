"""The checkpoints of a command where they are stored: what is damaged, or of another name, is not
restored.
"""

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
    """A start of a program that counts its starts in its checkpoint; returns what that holds
    then."""
    policy = CheckpointPolicy(str(folder / "kept"), None, None, 1.0, 60.0)
    task = NodeTask("r.1", run=COUNTS, checkpoint=policy)
    node = CommandNode(task, {MARK: str(folder / "machine"), "PATH": "/bin:/usr/bin"})
    assert node.run() == 0
    return b"".join(FileBlobStore(folder / "kept").get(newest(folder, "0"))).decode().strip()


def newest(folder: Path, part: str) -> str:
    return [
        name for name in FileBlobStore(folder / "kept").list("node-0/") if name.endswith(f".{part}")
    ][-1]


def test_a_checkpoint_is_continued(tmp_path: Path) -> None:
    assert [run(tmp_path) for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "content",
    [
        b"[1]",
        b"1",
        b"{",
        b"\xff",
        b"{}",
        b'{"files": 1}',
        b'{"files": ["../n"], "digests": {}}',
        b"null",
    ],
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


@pytest.mark.parametrize(
    "planted",
    [
        {"files": ["/etc/outside"]},
        {"files": ["n\0"]},
        {"links": {"l": "/etc"}},
        {"links": {"l": "../.."}},
        {"links": {"../l": "n"}},
        # As text, both lead to `y`; for the system, the second one leads out, by way of the first.
        {"links": {"p/q/l": "../../d", "p/q/l/x": "../../../y"}},
        {"links": {"l": 3}},
        {"links": [1]},
        {"times": ["x"]},
        {"times": [10**30]},
        {"times": [-1]},
        {"size": 10**30},
        {"size": 1e999},
        {"number": -1},
        {"every": float("nan")},
        {"seconds": -1.0},
        {"files": 1},
    ],
)
def test_a_planted_record_is_refused(planted: dict[str, object], tmp_path: Path) -> None:
    run(tmp_path)
    store, name = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "record")
    store.put(name, [json.dumps({**json.loads(b"".join(store.get(name))), **planted}).encode()])
    with pytest.raises(BadCheckpoint, match=r"damaged|another checkpoint"):
        StoredCheckpoints(str(tmp_path / "kept"), 0).latest()


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"[" * 10**6, "damaged"), (b"[" + b"0," * (33 << 20) + b"0]", "larger than")],
)
def test_a_record_that_is_a_bomb_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    run(tmp_path)
    FileBlobStore(tmp_path / "kept").put(newest(tmp_path, "record"), [content])
    with pytest.raises(BadCheckpoint, match=why):
        StoredCheckpoints(str(tmp_path / "kept"), 0).latest()


def test_the_target_of_a_link_does_not_pass_through_another_link(tmp_path: Path) -> None:
    run(tmp_path)
    store, name = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "record")
    links = {"p/q/l": "../../d", "p/q/m": "l/../../../y", "self": "."}
    content = json.dumps({**json.loads(b"".join(store.get(name))), "links": links}).encode()
    store.put(name, [content])
    kept = StoredCheckpoints(str(tmp_path / "kept"), 0)._record(name.removesuffix(".record"))[2][
        "links"
    ]
    # The system would take `l/..` for the folder above `d`, and the rest for a path outside.
    assert kept == {"p/q/l": "../../d", "p/q/m": "../../y", "self": "."}


def test_an_old_checkpoint_under_a_newer_name_is_not_restored(tmp_path: Path) -> None:
    """It would stay the newest for ever."""
    run(tmp_path)
    store, old = (
        FileBlobStore(tmp_path / "kept"),
        newest(tmp_path, "record").removesuffix(".record"),
    )
    content = {name: b"".join(store.get(name)) for name in store.list(old)}
    for name, value in content.items():
        store.put(name.replace(old, "node-0/999999999999-r.1"), [value])
    run(tmp_path)
    run(tmp_path)
    kept = [
        name for name in store.list("node-0/") if name.endswith(".0") and "999999999999" not in name
    ]
    assert b"".join(store.get(kept[-1])) == b"3\n"


def test_a_checkpoint_that_an_earlier_version_has_signed_is_read_as_any_other(
    tmp_path: Path,
) -> None:
    assert run(tmp_path) == "1"
    store, name = FileBlobStore(tmp_path / "kept"), newest(tmp_path, "record")
    values = json.loads(b"".join(store.get(name)))
    store.put(name, [json.dumps({**values, "digests": {"n": "00"}, "signature": "00"}).encode()])
    assert run(tmp_path) == "2"
