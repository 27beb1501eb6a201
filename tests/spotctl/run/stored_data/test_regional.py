"""Data that is copied once to the bucket of a region, and read there by the machines of the
region."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from pricing_data.market import Market
from pricing_data.units import DAY
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import FILES, FOLDER, SETS, WHOLE, SetLocation
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.data.transfer import local_copy
from spotctl.cli import doctor_checks as checks
from spotctl.clouds.doctor import Level
from spotctl.files.job.reader import written
from spotctl.files.job.spec import JobSpec
from spotctl.home.installation import installation_id
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.store import EventLog
from spotctl.run.stored_data.regional import RegionalCopies, copy_set
from spotctl.run.stored_data.removing import DataUses, remove_data, unused_data
from spotctl.run.work.workload import DataHere
from tests.servers.loopback import Fault, Reply, Request, serving
from tests.servers.objects import ObjectStore, S3Dialect
from tests.spotctl.run.stored_data.buckets import Bucket, bucket_of
from tests.waiting import eventually

NEAR = "data_buckets: {us-central1: gs://west/}\n"
HERE = Market("gcp", "us-central1", "us-central1-a", "n2-standard-4")
_COPY = """\
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import SetLocation
from spotctl.run.stored_data.regional import copy_set
copy_set(SetLocation.parse({!r}), SetLocation.parse({!r}), "home", MACHINE)
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    (tmp_path / "corpus").mkdir()
    for name in "abc":
        (tmp_path / "corpus" / name).write_text(name * 10)
    with bucket_of(tmp_path, monkeypatch) as bucket:
        bucket.store.add("west")
        yield bucket


def west(bucket: Bucket) -> ObjectStore:
    return bucket.store.others["west"]


def near_of(place: str) -> str:
    return place.replace("gs://bucket/", "gs://west/")


def copied(place: str, installation: str = "home") -> int:
    first, near = SetLocation.parse(place), SetLocation.parse(near_of(place))
    assert first is not None
    assert near is not None
    return len(copy_set(first, near, installation, MACHINE))


def read(bucket: Bucket, place: str, machine: str) -> tuple[dict[str, str], list[str], list[str]]:
    """The data that a machine reads, the buckets from which it fetches files, and its messages."""
    said = list[str]()
    bucket.server.requests.clear()
    kept = local_copy(place, bucket.folder / machine, near=near_of(place), say=said.append)
    asked = {
        call.path.split("/")[1]
        for call in bucket.server.requests
        if f"/{FILES}" in unquote(call.path)
    }
    return {path.name: path.read_text() for path in kept.iterdir()}, sorted(asked), said


CORPUS = {name: name * 10 for name in "abc"}


def test_a_copy_is_made_once_and_read_near_the_machine(bucket: Bucket) -> None:
    place = bucket.launched(more=NEAR)
    assert not any(key.startswith(FILES) for key in west(bucket).objects)
    files, asked, (line,) = read(bucket, place, "first")
    assert (files, asked) == (CORPUS, ["bucket"])
    assert line.startswith(
        "no copy of the data can be read in gs://west (gs://west/spotctl-data/whole/"
    )
    assert line.endswith("reads it in gs://bucket")
    assert [copied(place), copied(place)] == [3, 0]
    assert read(bucket, place, "second") == (CORPUS, ["west"], [])
    # A machine that has the data sends no request.
    read(bucket, place, "second")
    assert bucket.server.requests == []


def test_a_copy_that_loses_a_file_is_not_used_and_made_whole_again(bucket: Bucket) -> None:
    place = bucket.launched(more=NEAR)
    copied(place)
    lost = next(key for key in west(bucket).objects if key.startswith(FILES))
    del west(bucket).objects[lost]
    files, asked, (line,) = read(bucket, place, "machine")
    assert (files, asked) == (CORPUS, ["bucket", "west"])
    assert "it was removed after the launch" in line
    assert copied(place) == 1
    assert read(bucket, place, "another") == (CORPUS, ["west"], [])


@pytest.mark.parametrize("done", range(12))
def test_a_copy_that_ends_early_is_not_taken_for_whole(bucket: Bucket, done: int) -> None:
    """After each number of requests to the region's bucket, all others are refused."""
    place = bucket.launched(more=NEAR)
    bucket.server.faults.append(Fault("/west", Reply(403), skip=done, times=-1))
    is_whole = True
    try:
        copied(place)
    except StoreRefused:
        is_whole = False
    bucket.server.faults.clear()
    assert any(key.startswith(WHOLE) for key in west(bucket).objects) == is_whole
    assert read(bucket, place, "machine")[:2] == (CORPUS, ["west" if is_whole else "bucket"])
    copied(place)
    assert read(bucket, place, "later") == (CORPUS, ["west"], [])


@pytest.mark.parametrize("done", range(4))
def test_a_killed_copy_goes_on_where_it_was(bucket: Bucket, done: int) -> None:
    place = bucket.launched(more=NEAR)
    bucket.server.faults.append(Fault("/rewriteTo/", skip=done, times=-1, delay_seconds=1.0))
    if done == 3:
        bucket.server.faults[:] = [Fault(f"/west/{WHOLE}", skip=0, delay_seconds=1.0)]
    bucket.server.requests.clear()
    process = subprocess.Popen([sys.executable, "-c", _COPY.format(place, near_of(place))])

    def is_there() -> bool:
        wanted = f"/west/{WHOLE}" if done == 3 else "/rewriteTo/"
        return sum(wanted in unquote(call.path) for call in bucket.server.requests) > (
            0 if done == 3 else done
        )

    eventually(is_there)
    process.send_signal(signal.SIGKILL)
    process.wait()
    bucket.server.faults.clear()
    files, _, _ = read(bucket, place, "machine")
    assert files == CORPUS
    copied(place)
    assert read(bucket, place, "later") == (CORPUS, ["west"], [])


def test_a_bucket_that_cannot_be_used_costs_a_line(bucket: Bucket) -> None:
    spec = bucket.stored(more="data_buckets: {us-central1: gs://nowhere}\n")
    assert spec.data_buckets == {}
    assert bucket.said[-1].startswith(
        "data corpus: no copy in gs://nowhere, machines in us-central1 read gs://bucket: "
        "gs://nowhere/spotctl-data/"
    )
    settings = bucket.settings()
    assert [use.location.bucket for use in DataUses(Paths(settings.home).data).all()] == [
        "gs://bucket"
    ]
    # A launch that may write there again goes on with the copy, and one that may not keeps its
    # record.
    assert bucket.stored(more=NEAR).data_buckets == {"us-central1": "gs://west/"}
    bucket.server.faults.append(Fault("/west/", Reply(403), times=-1))
    assert bucket.stored(more=NEAR).data_buckets == {}
    assert len(DataUses(Paths(settings.home).data).all()) == 2


def test_doctor_does_not_miss_a_copy_that_no_machine_needed(bucket: Bucket) -> None:
    bucket.launched(more=NEAR)
    found = list(checks.of_buckets(bucket.settings(), MACHINE))
    assert [(finding.what, finding.level) for finding in found] == [
        ("gs://bucket", Level.GOOD),
        ("gs://west", Level.GOOD),
    ]


def test_a_bucket_of_another_store_gets_what_passes_through_here(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket.launched()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    store = S3Dialect("west", lambda _: None)
    with serving(store) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        first, near = (
            SetLocation.parse(place),
            SetLocation.parse(place.replace("gs://bucket", "s3://west")),
        )
        assert first is not None
        assert near is not None
        assert len(copy_set(first, near, "home", MACHINE)) == 3
        kept = local_copy(place, bucket.folder / "machine", near=str(near))
    assert {path.name for path in kept.iterdir()} == set(CORPUS)
    assert any(WHOLE in call.path for call in server.requests if call.method == "GET")
    # A damaged file is not passed on.
    damaged = next(key for key in bucket.store.objects if key.startswith(FILES))
    bucket.store.objects[damaged] = replace(bucket.store.objects[damaged], content=b"damaged")
    with serving(S3Dialect("west", lambda _: None)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        with pytest.raises(StoreRefused, match="is damaged"):
            copy_set(first, near, "home", MACHINE)
        assert isinstance(server.api, S3Dialect)
        assert not any(key in (damaged, WHOLE + near.digest) for key in server.api.objects)


# -- while a run goes on ---------------------------------------------------------------------------


# Of a state, only these parts are read.
def state_of(machines: Mapping[str, str]) -> Any:  # noqa: ANN401
    """A run with these machines, by name, each in a region."""
    alive = [SimpleNamespace(id=name, allocation=name) for name in machines]
    markets = {
        name: SimpleNamespace(market=replace(HERE, region=region))
        for name, region in machines.items()
    }
    return SimpleNamespace(stopping=None, alive=alive, allocations=markets)


def copies_of(bucket: Bucket, spec: JobSpec) -> RegionalCopies:
    return RegionalCopies(
        spec, installation_id(bucket.folder / "home"), MACHINE, bucket.said.append
    )


def rewrites(bucket: Bucket) -> int:
    return sum("/rewriteTo/" in call.path for call in bucket.server.requests)


def test_a_run_copies_when_a_machine_is_rented_in_the_region(bucket: Bucket) -> None:
    spec = bucket.stored(more=NEAR)
    bucket.said.clear()
    with closing(copies_of(bucket, spec)) as copies:
        copies.look(state_of({"far": "europe-west4"}))
        assert rewrites(bucket) == 0
        copies.look(state_of({"far": "europe-west4", "one": "us-central1", "two": "us-central1"}))

        def is_said() -> bool:
            copies.look(state_of({"one": "us-central1", "three": "us-central1"}))
            return bool(bucket.said)

        eventually(is_said)
    assert bucket.said == [
        "data corpus: 3 files, 30 bytes, copied to gs://west for machines in us-central1"
    ]
    assert rewrites(bucket) == 3
    bucket.said.clear()
    with closing(copies_of(bucket, spec)) as copies:
        copies.look(state_of({"four": "us-central1"}))
    assert (bucket.said, rewrites(bucket)) == ([], 3)


def test_a_copy_that_fails_costs_a_line_and_the_next_machine_tries_again(bucket: Bucket) -> None:
    spec = bucket.stored(more=NEAR)
    bucket.said.clear()
    bucket.server.faults.append(Fault("/rewriteTo/", Reply(403), times=-1))
    with closing(copies_of(bucket, spec)) as copies:
        copies.look(state_of({"one": "us-central1"}))

        def has_said(lines: int) -> bool:
            copies.look(state_of({}))
            return len(bucket.said) == lines

        eventually(lambda: has_said(1))
        assert bucket.said[0].startswith(
            "data corpus: no copy in gs://west, machines in us-central1 read gs://bucket: "
        )
        bucket.server.faults.clear()
        copies.look(state_of({"one": "us-central1"}))
        assert rewrites(bucket) <= 3
        copies.look(state_of({"two": "us-central1"}))
        eventually(lambda: has_said(2))
    assert "copied to gs://west" in bucket.said[1]


def test_a_run_that_ends_does_not_wait_for_its_copies(bucket: Bucket) -> None:
    spec = bucket.stored(more=NEAR)
    # A removal by another home keeps the copy waiting.
    announced = f"{FOLDER}/collecting/other"
    west(bucket).answer(
        Request("PUT", f"/west/{announced}", {}, {"authorization": "Bearer token"}, b"")
    )
    stored = west(bucket).objects[announced]
    west(bucket).objects[announced] = replace(stored, content=str(wall_us() // 10**6).encode())
    copies = copies_of(bucket, spec)
    copies.look(state_of({"one": "us-central1"}))
    eventually(lambda: any(key.startswith(SETS) for key in west(bucket).objects))
    copies.close()
    assert not any(key.startswith(WHOLE) for key in west(bucket).objects)


def test_the_runner_of_a_training_reads_the_copy_of_its_region(bucket: Bucket) -> None:
    place = bucket.launched(more=NEAR)
    copied(place)
    bucket.server.requests.clear()
    here = DataHere(
        {"DATA_CORPUS": place}, bucket.folder / "cache", MACHINE, {"DATA_CORPUS": near_of(place)}
    )
    eventually(lambda: here.copies() is not None)
    assert {call.path.split("/")[1] for call in bucket.server.requests} == {"west"}


# -- removal ---------------------------------------------------------------------------------------


def aged(bucket: Bucket, home: str = "home") -> None:
    """Lets the last use of all data sets be 31 days earlier."""
    uses = DataUses(Paths(bucket.folder / home).data)
    for use in uses.all():
        uses.note(replace(use, used=use.used - 31 * DAY))


def removed(bucket: Bucket, home: str = "home") -> list[str]:
    settings = bucket.settings(home)
    return remove_data(settings, unused_data(settings, 30), MACHINE)


def left(bucket: Bucket) -> set[str]:
    return {key.split("/")[1] for key in west(bucket).objects if key.startswith(FOLDER)}


def test_removal_takes_the_copies_of_all_regions(bucket: Bucket) -> None:
    copied(bucket.launched(more=NEAR), installation_id(bucket.folder / "home"))
    assert left(bucket) == {"files", "sets", "users", "whole"}
    aged(bucket)
    assert removed(bucket) == []
    assert left(bucket) == set()
    assert not any(key.startswith(FOLDER) for key in bucket.store.objects)


def test_a_copy_that_was_never_made_is_removed_without_a_word(bucket: Bucket) -> None:
    bucket.launched(more=NEAR)
    aged(bucket)
    assert removed(bucket) == []
    assert left(bucket) == set()


def test_a_copy_that_another_home_uses_is_kept(bucket: Bucket) -> None:
    place = bucket.launched(more=NEAR)
    copied(place, installation_id(bucket.folder / "home"))
    assert bucket.launched(home="other", more=NEAR) == place
    aged(bucket)
    assert removed(bucket) == []
    assert left(bucket) == {"files", "sets", "users", "whole"}
    assert read(bucket, place, "machine") == (CORPUS, ["west"], [])
    aged(bucket, "other")
    assert removed(bucket, "other") == []
    assert left(bucket) == set()


def test_copies_of_a_run_that_goes_on_are_kept(bucket: Bucket) -> None:
    spec = bucket.stored(more=NEAR)
    aged(bucket)
    with EventLog(Paths(bucket.folder / "home").log) as log:
        log.append(
            "reading-1", 1, RunBegan("reading", "gcp", written(spec), "", wall_us(), None, "")
        )
        assert unused_data(bucket.settings(), 30) == []
        log.append("reading-1", 2, RunEnded("done", "", wall_us()))
    assert len(unused_data(bucket.settings(), 30)) == 2


@pytest.mark.parametrize("done", range(8))
def test_a_removal_that_ends_early_leaves_nothing_that_is_taken_for_whole(
    bucket: Bucket, done: int
) -> None:
    place = bucket.launched(more=NEAR)
    copied(place, installation_id(bucket.folder / "home"))
    aged(bucket)
    copies = [use for use in unused_data(bucket.settings(), 30) if use.may_lack]
    bucket.server.faults.append(Fault("/west", Reply(403), skip=done, times=-1))
    failures = remove_data(bucket.settings(), copies, MACHINE)
    bucket.server.faults.clear()
    assert failures
    is_whole = any(key.startswith(WHOLE) for key in west(bucket).objects)
    files = sum(key.startswith(FILES) for key in west(bucket).objects)
    assert files == 3 or not is_whole
    assert read(bucket, place, "machine")[0] == CORPUS
    assert remove_data(bucket.settings(), copies, MACHINE) == []
    assert left(bucket) == set()


# -- the job file ----------------------------------------------------------------------------------
