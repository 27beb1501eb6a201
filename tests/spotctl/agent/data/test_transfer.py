"""Data, outputs and checkpoints of command jobs in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent.checkpoints.stored import (
    CheckpointRecord,
    StoredCheckpoints,
    discard_checkpoints,
    forget_ended,
    have_ended,
    links_of,
    note_ended,
    note_finished,
)
from spotctl.agent.data import stores
from spotctl.agent.data.transfer import deliver, listing, local_copy
from spotctl.agent.errors import BadCheckpoint, TransferFailed
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.objects import ObjectStore, S3Dialect, Stored, bearer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    with serving(S3Dialect("bucket", bearer("token"))) as running:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", running.url)
        yield running


@pytest.fixture
def bucket(server: LoopbackServer) -> ObjectStore:
    assert isinstance(server.api, ObjectStore)
    return server.api


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_data_below_a_prefix_is_copied_once(
    bucket: ObjectStore, server: LoopbackServer, tmp_path: Path
) -> None:
    for key in ("ratings/a.csv", "ratings/deep/b.csv", "ratings/", "ratings-old/c.csv"):
        bucket.objects[key] = Stored(key.encode())
    kept = local_copy("gs://bucket/ratings/", tmp_path)
    assert (kept.name, files(kept)) == (
        "ratings",
        {"a.csv": "ratings/a.csv", "deep/b.csv": "ratings/deep/b.csv"},
    )
    asked = len(server.requests)
    assert local_copy("gs://bucket/ratings/", tmp_path) == kept
    assert len(server.requests) == asked


def test_data_may_be_one_object(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.objects["ratings.csv"] = bucket.objects["ratings.csv.old"] = Stored(b"1,2")
    assert local_copy("gs://bucket/ratings.csv", tmp_path).read_text() == "1,2"


def test_a_copy_that_failed_is_not_used(
    bucket: ObjectStore, server: LoopbackServer, tmp_path: Path
) -> None:
    bucket.objects |= {"d/a": Stored(b"a"), "d/b": Stored(b"b")}
    server.faults.append(Fault("/bucket/d/b", Reply(403)))
    with pytest.raises(
        TransferFailed, match=r"data gs://bucket/d: gs://bucket/d/b: .*may not do this"
    ):
        local_copy("gs://bucket/d", tmp_path)
    assert files(local_copy("gs://bucket/d", tmp_path)) == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (
            "gs://bucket/nothing",
            "there is no such object, and none below it; correct it in the job file",
        ),
        ("gs://another/x", "NoSuchBucket"),
        ("az://container/x", "name the storage account"),
    ],
)
@pytest.mark.usefixtures("server")
def test_data_that_is_not_there_is_named(tmp_path: Path, location: str, reason: str) -> None:
    with pytest.raises(TransferFailed, match=reason):
        local_copy(location, tmp_path)


def test_a_key_cannot_leave_the_cache(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.objects["d/../../../evil"] = Stored(b"")
    with pytest.raises(TransferFailed, match="a name that cannot be a file's"):
        local_copy("gs://bucket/d", tmp_path / "cache")
    assert not (tmp_path / "evil").exists()


def test_outputs_are_plain_objects(
    bucket: ObjectStore, server: LoopbackServer, tmp_path: Path
) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "model.npz").write_text("model")
    (tmp_path / "out" / "deep" / "log txt").write_text("log")
    deliver(tmp_path / "out", "gs://bucket/models/run-1/")
    assert {key: one.content for key, one in bucket.objects.items()} == {
        "models/run-1/model.npz": b"model",
        "models/run-1/deep/log txt": b"log",
    }
    server.faults.append(Fault("/models", Reply(403), times=-1))
    with pytest.raises(
        TransferFailed,
        match=r"output gs://bucket/models/run-1: cannot be written: .*may not do this",
    ):
        deliver(tmp_path / "out", "gs://bucket/models/run-1")


def test_checkpoints_are_stored_restored_and_discarded(bucket: ObjectStore, tmp_path: Path) -> None:
    path, folder = "gs://bucket/ckpt/", tmp_path / "own"
    folder.mkdir()
    checkpoints = StoredCheckpoints(path, 0)
    assert checkpoints.latest() is None
    for number in (1, 2, 3):
        (folder / "state").write_text(f"step {number}")
        checkpoints.put_files("run.1", number, folder, ["state"])
        checkpoints.put_record(CheckpointRecord("run.1", number, 0.1, 6, 60.0), ["state"])
    found = StoredCheckpoints(path, 0).restore(tmp_path / "next")
    assert found is not None
    assert (found.number, files(tmp_path / "next")) == (3, {"state": "step 3"})
    # Two are kept. If the newest is damaged, the one before it counts.
    assert len(bucket.objects) == 4
    newest = max(key for key in bucket.objects if key.endswith(".0"))
    bucket.objects[newest] = Stored(b"x" + bucket.objects[newest].content[1:])
    found = StoredCheckpoints(path, 0).restore(tmp_path / "next")
    assert found is not None
    assert (found.number, files(tmp_path / "next")) == (2, {"state": "step 2"})
    discard_checkpoints(path, fresh=False)
    assert len(bucket.objects) == 4
    note_finished(path, "run")
    discard_checkpoints(path, fresh=False)
    assert bucket.objects == {}


@pytest.mark.usefixtures("bucket")
def test_a_restored_checkpoint_has_the_times_and_the_links_by_which_programs_find_the_newest(
    tmp_path: Path,
) -> None:
    """Names in their order are not in the order of their steps: `epoch_10` comes before
    `epoch_9`."""
    path, folder = "gs://bucket/ckpt/", tmp_path / "own"
    for epoch in (9, 10):
        (folder / f"epoch_{epoch}").mkdir(parents=True)
        for name in ("part", ".metadata", ".part.new"):
            (folder / f"epoch_{epoch}" / name).write_text(str(epoch))
            os.utime(folder / f"epoch_{epoch}" / name, ns=(epoch * 10**9, epoch * 10**9))
    (folder / "latest").symlink_to("epoch_10")
    (folder / "outside").symlink_to("/usr")
    (folder / "absolute").symlink_to(folder / "epoch_9")
    names = [name for name, *_ in listing(folder)]
    more = {"times": [changed for _, _, changed, _ in listing(folder)], "links": links_of(folder)}
    assert names == [f"epoch_{epoch}/{name}" for epoch in (10, 9) for name in (".metadata", "part")]
    checkpoints = StoredCheckpoints(path, 0)
    checkpoints.put_files("run.1", 1, folder, names)
    checkpoints.put_record(CheckpointRecord("run.1", 1, 0.1, 6, 60.0), names, more)
    new = tmp_path / "next"
    assert StoredCheckpoints(path, 0).restore(new) is not None
    assert [str((new / name).readlink()) for name in ("latest", "absolute")] == [
        "epoch_10",
        "epoch_9",
    ]
    assert sorted(item.name for item in new.iterdir()) == [
        "absolute",
        "epoch_10",
        "epoch_9",
        "latest",
    ]
    for pattern in ("epoch_*", "epoch_*/part"):
        assert [found.stat().st_mtime_ns // 10**9 for found in sorted(new.glob(pattern))] == [10, 9]


def test_an_output_does_not_leave_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, secret = tmp_path / "out", tmp_path / "secret"
    (folder / "in").mkdir(parents=True)
    secret.mkdir()
    (secret / "key").write_text("the user's own")
    (folder / "in" / "file").write_text("a result")
    (folder / "near").symlink_to("in/file")
    targets = {
        "key": secret / "key",
        "up": Path("../secret/key"),
        "folder": secret,
        "loop": Path("loop"),
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")

    assert [name for name, *_ in listing(folder, unfinished=True)] == ["in/file", "near"]
    assert capsys.readouterr().err == ""  # nothing is copied
    for _ in range(2):
        assert [name for name, *_ in listing(folder)] == ["in/file", "near"]
    deliver(folder, str(tmp_path / "results"))
    found = {
        path.relative_to(tmp_path / "results").as_posix()
        for path in (tmp_path / "results").rglob("*")
    }
    assert found == {"in", "in/file", "near"}
    said = capsys.readouterr().err
    assert (
        said.count(
            f"spotctl: {folder / 'key'} is not copied: it is no file, or a link out of its folder"
        )
        == 1
    )
    assert said.count("is not copied") == 3


def test_an_output_that_is_larger_than_the_disk_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "first").touch()
    with (tmp_path / "out" / "holes").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(
        TransferFailed, match="cannot be written: No space left on device; make room there"
    ):
        deliver(tmp_path / "out", str(tmp_path / "results"))
    assert not [*(tmp_path / "results").iterdir()]


def test_checkpoints_that_cannot_be_reached_are_named(
    server: LoopbackServer, tmp_path: Path
) -> None:
    checkpoints = StoredCheckpoints("gs://bucket/ckpt", 0)
    server.faults.append(Fault("/", Reply(403), times=-1))
    for use in (
        checkpoints.latest,
        lambda: checkpoints.restore(tmp_path / "x"),
        lambda: checkpoints.put_record(CheckpointRecord("r.1", 1, 0.1, 6, 60.0), []),
        lambda: discard_checkpoints("gs://bucket/ckpt", fresh=True),
        lambda: note_finished("gs://bucket/ckpt", "run"),
    ):
        with pytest.raises(BadCheckpoint, match=r"gs://bucket/ckpt.*may not do this"):
            use()
    for mark in (
        lambda: note_ended("gs://bucket/out/spotctl", "run.1", 0),
        lambda: have_ended("gs://bucket/out/spotctl", "run.1", 1),
        lambda: forget_ended("gs://bucket/out/spotctl", "run"),
    ):
        with pytest.raises(TransferFailed, match=r"gs://bucket/out/spotctl.*may not do this"):
            mark()
