"""Stored data that no job has used for long is removed, and no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import DAY
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import FILES, FOLDER, SETS
from spotctl.agent.data.transfer import local_copy
from spotctl.files.job.reader import load, written
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.store import EventLog
from spotctl.run.stored_data.removing import (
    DataUses,
    remove_copies,
    remove_data,
    store_lock,
    unused_copies,
    unused_data,
)
from tests.servers.loopback import Fault, Reply
from tests.spotctl.run.stored_data.buckets import Bucket, bucket_of


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    (tmp_path / "corpus").mkdir()
    for name in "abc":
        (tmp_path / "corpus" / name).write_text(name)
    with bucket_of(tmp_path, monkeypatch) as bucket:
        yield bucket


def aged(bucket: Bucket, place: str, days: int, home: str = "home") -> None:
    """Makes the last use of data older."""
    uses = DataUses(bucket.folder / home / "data")
    (use,) = (use for use in uses.all() if str(use.location) == place)
    uses.note(replace(use, used=use.used - days * DAY))


def left(bucket: Bucket) -> list[str]:
    return sorted(one.content.decode() for key, one in bucket.store.objects.items() if FILES in key)


def collected(bucket: Bucket, home: str = "home", days: int = 30) -> int:
    unused = unused_data(bucket.settings(home), days)
    assert remove_data(bucket.settings(home), unused, MACHINE) == []
    return len(unused)


def test_files_of_no_data_in_use_are_removed(bucket: Bucket) -> None:
    first = bucket.launched()
    (bucket.data / "c").write_text("C")
    second = bucket.launched()
    aged(bucket, first, 31)
    assert collected(bucket) == 1
    assert left(bucket) == ["C", "a", "b"]
    assert set(local_copy(second, bucket.folder / "cache").iterdir())
    assert collected(bucket) == 0
    assert collected(bucket, days=1) == 0
    aged(bucket, second, 31)
    assert collected(bucket) == 1
    assert [key for key in bucket.store.objects if key.startswith(FOLDER)] == []
    # What was removed is sent again.
    bucket.launched()
    assert left(bucket) == ["C", "a", "b"]


def test_data_that_another_home_uses_is_kept(bucket: Bucket) -> None:
    place = bucket.launched()
    assert bucket.launched(home="other") == place
    aged(bucket, place, 31)
    assert collected(bucket) == 1
    assert left(bucket) == ["a", "b", "c"]
    aged(bucket, place, 31, "other")
    assert collected(bucket, "other") == 1
    assert left(bucket) == []


def test_data_of_a_run_that_goes_on_is_kept(bucket: Bucket) -> None:
    place = bucket.launched()
    aged(bucket, place, 400)
    spec = replace(load(bucket.folder / "reading.yaml"), data={"corpus": place})
    with EventLog(Paths(bucket.folder / "home").log) as log:
        log.append(
            "reading-1", 1, RunBegan("reading", "gcp", written(spec), "", wall_us(), None, "")
        )
        assert unused_data(bucket.settings(), 30) == []
        log.append("reading-1", 2, RunEnded("done", "", wall_us()))
    assert len(unused_data(bucket.settings(), 30)) == 1


def test_nothing_is_removed_while_a_launch_stores_or_after_it_used_the_data(bucket: Bucket) -> None:
    place = bucket.launched()
    aged(bucket, place, 31)
    unused = unused_data(bucket.settings(), 30)
    with (
        store_lock(bucket.folder / "home" / "data", to_remove=False),
        pytest.raises(BadRequest, match="a launch of this home is storing"),
    ):
        remove_data(bucket.settings(), unused, MACHINE)
    bucket.launched()
    assert remove_data(bucket.settings(), unused, MACHINE) == []
    assert left(bucket) == ["a", "b", "c"]


def test_a_removal_that_ends_early_is_finished_by_the_next(bucket: Bucket) -> None:
    place = bucket.launched()
    aged(bucket, place, 31)
    bucket.server.faults.append(Fault(FILES, Reply(403), times=-1))
    (failure,) = remove_data(bucket.settings(), unused_data(bucket.settings(), 30), MACHINE)
    assert failure.startswith(
        "data in gs://bucket: not all was removed: gs://bucket/spotctl-data/files/"
    )
    assert any(key.startswith(SETS) for key in bucket.store.objects)
    bucket.server.faults.clear()
    assert collected(bucket) == 1
    assert [key for key in bucket.store.objects if key.startswith(FOLDER)] == []


def test_copies_on_this_computer_go_when_no_job_has_used_them(bucket: Bucket) -> None:
    settings, cache = bucket.settings(), Paths(bucket.folder / "home").cache
    assert unused_copies(settings, 30) == []
    kept = local_copy(str(bucket.data), cache)
    assert unused_copies(settings, 30) == []
    age = wall_us() // 10**6 - 31 * 86400
    os.utime(kept.parent, (age, age))
    (copy,) = unused_copies(settings, 30)
    assert copy[:2] == (kept.parent, 3)
    # Used again before it is removed, it stays.
    assert local_copy(str(bucket.data), cache) == kept
    assert remove_copies(settings, [copy]) == []
    assert kept.exists()
    os.utime(kept.parent, (age, age))
    bucket.launched("x")
    spec = {**written(load(bucket.folder / "x.yaml")), "resources": {"clouds": ["local"]}}
    with EventLog(Paths(bucket.folder / "home").log) as log:
        log.append("x-1", 1, RunBegan("x", "local", spec, "", wall_us(), None, ""))
        assert unused_copies(settings, 30) == []
        log.append("x-1", 2, RunEnded("done", "", wall_us()))
    assert remove_copies(settings, unused_copies(settings, 30)) == []
    assert [path.name for path in cache.iterdir()] == [".lock"]
