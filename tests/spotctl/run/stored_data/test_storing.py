"""Data folders that are stored once, and fetched from the bucket by each machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from agileml.runtime import blob_store
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import FILES, SETS, DataSet, DigestOf, SetLocation, describe
from spotctl.agent.data.transfer import local_copy
from spotctl.agent.errors import TransferFailed
from spotctl.cli import doctor_checks as checks
from spotctl.clouds.doctor import Level
from spotctl.files.job import data_places
from spotctl.files.job.reader import load
from spotctl.home.errors import BadRequest, Interrupted
from spotctl.run.stored_data import storing
from spotctl.run.stored_data.removing import COLLECTING
from spotctl.run.stored_data.storing import store_data
from spotctl.run.work.workload import DataHere
from tests.servers.loopback import Fault, Reply
from tests.servers.objects import Stored
from tests.spotctl.run.stored_data.buckets import JOB, Bucket, bucket_and_corpus
from tests.waiting import eventually


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket_and_corpus(tmp_path, monkeypatch) as bucket:
        yield bucket


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written are read again, because they may still change."""
    monkeypatch.setattr(storing, "_SETTLED_NS", -(10**12))


def test_a_folder_is_sent_once_and_then_only_what_has_changed(
    bucket: Bucket, tmp_path: Path
) -> None:
    first = bucket.launched()
    assert sorted(bucket.calls("PUT")) == [300, 5000]
    assert bucket.launched(name="another") == first
    assert bucket.calls("PUT") == []
    (bucket.data / "deep" / "b").write_bytes(b"B" * 200)
    second = bucket.launched()
    assert bucket.calls("PUT") == [200]
    assert bucket.said == [
        "data corpus: 2 files, 5.3 kB, in gs://bucket; 2 of them sent, 5.3 kB",
        "data corpus: 2 files, 5.3 kB, in gs://bucket; nothing to send",
        "data corpus: 2 files, 5.2 kB, in gs://bucket; 1 of them sent, 200 bytes",
    ]
    for place, b in ((first, b"b" * 300), (second, b"B" * 200)):
        kept = local_copy(place, tmp_path / "cache")
        assert (kept.name, files(kept)) == ("corpus", {"a": b"a" * 5000, "deep/b": b})


def test_a_machine_fetches_a_folder_once_whoever_asks(bucket: Bucket, tmp_path: Path) -> None:
    place, cache = bucket.launched(), tmp_path / "cache"
    bucket.fetched()
    kept = local_copy(place, cache)
    assert bucket.fetched() == 5300
    assert local_copy(place, cache) == kept
    assert bucket.server.requests == []
    assert [path.name for path in cache.iterdir() if not path.name.startswith(".lock")] == [
        kept.parent.name
    ]


def test_unchanged_files_are_not_read_again(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    first = bucket.launched()
    (bucket.data / "deep" / "b").write_bytes(b"B" * 300)
    read = list[str]()

    def pieces(path: Path) -> Iterator[bytes]:
        read.append(path.name)
        return blob_store.file_pieces(path)

    monkeypatch.setattr(storing, "file_pieces", pieces)
    assert bucket.launched() != first
    assert read == ["b", "b"], "once for its digest, and once to be sent"
    # A record that is damaged costs time only.
    (record,) = (bucket.folder / "home" / "data" / "digests").iterdir()
    record.write_text("{")
    bucket.launched()
    assert read == ["b", "b", "a", "b"]


def test_a_file_with_the_same_size_and_time_counts_as_changed_if_it_was_written(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    first, path = bucket.launched(), bucket.data / "a"
    status = path.stat()
    path.write_bytes(b"A" * 5000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert bucket.launched() != first


def test_permissions_links_empty_folders_and_odd_names_arrive(
    bucket: Bucket, tmp_path: Path
) -> None:
    data = bucket.data
    (data / "run.sh").write_text("#!/bin/sh\n")
    (data / "run.sh").chmod(0o750)
    (data / "empty" / "inner").mkdir(parents=True)
    (data / "empty").chmod(0o700)
    (data / ".hidden").write_text("hidden")
    (data / "none").write_bytes(b"")
    (data / "twin").write_bytes(b"a" * 5000)
    odd = [
        "with space",
        "new\nline",
        "ünïcödé",
        'quo"te',
        "-dash",
        "a%2Fb",
        "back\\slash",
        os.fsdecode(b"\xff\xfe"),
    ]
    for name in odd:
        (data / name).write_text(name, errors="surrogateescape")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far").write_text("far")
    (data / "deep" / "up").symlink_to("../a")
    (data / "absolute").symlink_to(data / "deep")
    (data / "outside").symlink_to(tmp_path / "elsewhere")
    (data / "outside-file").symlink_to(tmp_path / "elsewhere" / "far")
    # The local market copies the same.
    arrives(data, local_copy(str(data), tmp_path / "cache"))
    arrives(data, local_copy(bucket.launched(), tmp_path / "cache"))


def arrives(data: Path, kept: Path) -> None:
    assert files(kept) == {**files(data), "outside/far": b"far"}
    assert sorted(path.relative_to(kept) for path in kept.rglob("*")) == sorted(
        path.relative_to(data) for path in [*data.rglob("*"), data / "outside" / "far"]
    )
    assert stat.S_IMODE((kept / "run.sh").stat().st_mode) == 0o750
    assert stat.S_IMODE((kept / "empty").stat().st_mode) == 0o700
    assert (kept / "deep" / "up").readlink() == Path("../a")
    assert (kept / "absolute").readlink() == Path("deep")
    assert not (kept / "outside").is_symlink()
    # A program that changes one of two equal files does not change the other.
    (kept / "twin").write_text("changed")
    assert (kept / "a").read_bytes() == b"a" * 5000


def test_data_may_be_one_file(bucket: Bucket, tmp_path: Path) -> None:
    shutil.rmtree(bucket.data)
    bucket.data.write_text("1,2")
    assert local_copy(bucket.launched(), tmp_path / "cache").read_text() == "1,2"


def test_parts_that_cannot_be_stored_are_named(bucket: Bucket) -> None:
    broken = bucket.data / "broken"
    broken.symlink_to("/nowhere/x")
    with pytest.raises(
        TransferFailed, match=r"corpus/broken is a link to /nowhere/x, which does not exist"
    ):
        bucket.launched()
    broken.unlink()
    broken.symlink_to(bucket.data.parent)
    with pytest.raises(
        TransferFailed,
        match=r"broken/corpus leads back to .*/corpus, in which it is itself; remove",
    ):
        bucket.launched()
    broken.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(bucket.data / "socket"))
        with pytest.raises(TransferFailed, match=r"corpus/socket is no file, folder or link"):
            bucket.launched()
    (bucket.data / "socket").unlink()
    bucket.server.faults.append(Fault(FILES, Reply(403), times=-1))
    with pytest.raises(TransferFailed, match=r"cannot be stored in gs://bucket: .*may not do this"):
        bucket.launched()


def test_data_that_fits_on_no_disk_is_refused_before_anything_is_sent(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataSet, "size", 9 << 30)
    with pytest.raises(
        BadRequest, match=r"has 9.7 GB, and the machines' disk only 8 GiB: raise image.disk_gib"
    ):
        bucket.launched(more="image: {disk_gib: 8}\n")
    assert bucket.server.requests == []


@pytest.mark.parametrize(
    ("data", "more", "disk"),
    [
        (400 * 10**9, "", 150 + 373),
        (4 * 10**9, "", None),
        (400 * 10**9, "image: {disk_gib: 1000}\n", 1000),
    ],
)
def test_disks_hold_the_data(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, data: int, more: str, disk: int | None
) -> None:
    """A machine's disk had the same size whatever a job has, and a transfer failed when it was
    full."""
    monkeypatch.setattr(DataSet, "size", data)
    spec = bucket.stored(more=more)
    assert spec.image.disk_gib == disk
    said = "machines get disks of 523 GiB: 150 for their image and environment, 373 for data"
    assert any(said in line for line in bucket.said) == (disk == 523)


@pytest.mark.parametrize(
    ("resources", "disk"),
    [("[gcp], types: [a2-highgpu-1g]", 150 + 932), ("[slurm]", None), ("[local]", None)],
)
def test_disks_hold_two_checkpoints(bucket: Bucket, resources: str, disk: int | None) -> None:
    """Nodes of a cluster have no disk to order: a size would be refused there."""
    path = bucket.folder / "saving.yaml"
    path.write_text(
        "name: saving\nkind: command\nrun: python train.py\nhours: 4h\n"
        "checkpoint: {path: gs://bucket/saved/, size: 500 GB}\n"
        f"resources: {{clouds: {resources}}}\n"
    )
    spec = store_data(load(path), bucket.settings(), bucket.said.append)
    assert spec.image.disk_gib == disk


def test_a_file_that_changes_on_its_way_is_described_again(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = iter([b"1" * 5000, b"2" * 5000])

    def describe_and_change(source: Path, known: DigestOf) -> DataSet:
        listed = describe(source, known)
        if (content := next(writes, None)) is not None:
            (bucket.data / "a").write_bytes(content)
        return listed

    monkeypatch.setattr(storing, "describe", describe_and_change)
    place = bucket.launched()
    assert files(local_copy(place, bucket.folder / "cache"))["a"] == b"2" * 5000
    stored = {
        key.removeprefix(FILES): one.content
        for key, one in bucket.store.objects.items()
        if FILES in key
    }
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in stored.items())
    (bucket.data / "a").write_bytes(b"3" * 5000)
    writes = iter([b"4" * 5000, b"5" * 5000, b"6" * 5000])
    with pytest.raises(
        TransferFailed, match=r"corpus/a keeps changing; launch again when nothing writes to it"
    ):
        bucket.launched()


def test_a_launch_that_fails_or_is_stopped_leaves_the_rest_to_the_next(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "CONNECTIONS", 1)
    refusal = Fault(FILES, Reply(403), skip=1)
    bucket.server.faults.append(refusal)
    with pytest.raises(TransferFailed):
        bucket.launched()
    assert len(bucket.calls("PUT")) == 2
    path = bucket.folder / "reading.yaml"
    with pytest.raises(Interrupted, match="stopped before anything was rented"):
        store_data(load(path), bucket.settings(), bucket.said.append, lambda: True, MACHINE)
    assert bucket.server.requests == []
    bucket.launched()
    assert len(bucket.calls("PUT")) == 1


def test_a_launch_waits_while_another_home_removes_data(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.store.objects[f"{COLLECTING}other"] = Stored(str(int(time.time())).encode())

    def pause(_: float) -> None:
        bucket.store.objects = {}

    monkeypatch.setattr(time, "sleep", pause)
    place = bucket.launched()
    assert bucket.said[0] == "data corpus: waits while old data is removed from gs://bucket"
    assert files(local_copy(place, bucket.folder / "cache")) == files(bucket.data)
    # One that was killed holds nobody up.
    bucket.store.objects[f"{COLLECTING}other"] = Stored(b"1000")
    bucket.launched()


def test_a_full_disk_is_one_clear_line(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket.launched()
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(TransferFailed) as refused:
        local_copy(place, tmp_path / "cache")
    assert str(refused.value) == (
        f"data {place}: needs 5.3 kB more on the disk, which has 1.0 kB free: set a larger one, "
        "such as image: {disk_gib: 200}"
    )


def test_doctor_checks_the_buckets_that_have_data(bucket: Bucket) -> None:
    def findings() -> list[tuple[str, Level, str]]:
        return [
            (one.what, one.level, one.detail)
            for one in checks.of_buckets(bucket.settings(), MACHINE)
        ]

    assert findings() == []
    place = bucket.launched()
    assert findings() == [("gs://bucket", Level.GOOD, "1 data set of 5.3 kB in all")]
    del bucket.store.objects[SETS + place.rpartition("/")[2]]
    assert findings() == [
        ("gs://bucket", Level.NOTE, "1 data set of 5.3 kB in all, 1 of them gone")
    ]
    bucket.server.faults.append(Fault("/bucket", Reply(403), times=-1))
    ((name, level, detail),) = findings()
    assert (name, level) == ("gs://bucket", Level.NO_ACCESS)
    assert detail.startswith("not in reach: gs://bucket/spotctl-data/sets/: status 403")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("outputs: {x: gs://bucket/x/}", ""),
        ("checkpoint: {path: gs://bucket/x/}", ""),
        (
            "setup: make",
            "put the checkpoint or an output there: spotctl then stores the data in the same "
            "bucket",
        ),
        (
            "data: {more: nowhere}\noutputs: {x: gs://bucket/x/}",
            "nowhere, but no such file or folder exists",
        ),
    ],
)
def test_a_local_folder_needs_the_jobs_bucket(bucket: Bucket, line: str, message: str) -> None:
    text = JOB.replace(
        "checkpoint: {{path: gs://bucket/{name}/}}\n",
        line.replace("{", "{{").replace("}", "}}") + "\n",
    )
    if line.startswith("data:"):
        text = text.replace("data: {{corpus: {data}}}\n", "")
    path = bucket.folder / "job.yaml"
    path.write_text(text.format(name="reading", data=bucket.data, more=""))
    with pytest.raises(BadRequest, match=message) if message else nullcontext():
        load(path, to_launch=True)


TRAINING = """\
name: reading
kind: agileml
app: mlr
args: {{examples: 40, features: 4, classes: 2}}
stop: {{clocks: 3}}
throughputs: {{n1-standard-1: 600}}
{places}
data: {{corpus: {data}}}
resources: {{clouds: [gcp], regions: [us-central1], types: [n1-standard-1], machines: 2}}
"""


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("outputs: {model: gs://bucket/model/}", ""),
        ("setup: make", "put outputs.model there: spotctl then stores the data in the same bucket"),
    ],
)
def test_a_training_has_its_data_in_the_bucket_of_its_model(
    bucket: Bucket, places: str, message: str
) -> None:
    path = bucket.folder / "job.yaml"
    path.write_text(TRAINING.format(places=places, data=bucket.data))
    with pytest.raises(BadRequest, match=message) if message else nullcontext():
        spec = load(path, to_launch=True)
        stored = SetLocation.parse(
            store_data(spec, bucket.settings(), print, identity=MACHINE).data["corpus"]
        )
        assert stored is not None
        assert stored.bucket == "gs://bucket"


def test_a_runner_copies_data_while_its_run_goes_on(bucket: Bucket, tmp_path: Path) -> None:
    here = DataHere({"DATA_CORPUS": bucket.launched()}, tmp_path / "cache", MACHINE)
    eventually(lambda: here.copies() is not None)
    copies = here.copies()
    assert copies is not None
    assert files(Path(copies["DATA_CORPUS"])) == files(bucket.data)


@pytest.mark.usefixtures("bucket")
def test_a_runner_says_what_it_cannot_copy(tmp_path: Path) -> None:
    here = DataHere({"DATA_MORE": "gs://bucket/nothing/"}, tmp_path / "cache", MACHINE)
    with pytest.raises(TransferFailed, match="gs://bucket/nothing/: there is no such object"):
        eventually(lambda: here.copies() is not None)


def test_the_bucket_is_that_of_the_checkpoint_or_else_one_on_the_jobs_cloud(bucket: Bucket) -> None:
    path = bucket.folder / "job.yaml"
    for places, expected in (
        ("checkpoint: {path: gs://b/x/y/}\noutputs: {m: gs://c/}", "gs://b"),
        ("checkpoint: {path: s3://b/x}\noutputs: {m: gs://c/}", "gs://c"),
        ("checkpoint: {path: az://b@account/x}", "az://b@account"),
        ("outputs: {m: out}", ""),
    ):
        text = JOB.format(name="x", data="corpus", more="").replace(
            "checkpoint: {path: gs://bucket/x/}", places
        )
        path.write_text(text)
        assert data_places.bucket_of(load(path)) == expected
