"""Sets of files that machines fetch from a store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from spotctl.agent.data import sets
from spotctl.agent.data.sets import FILES, SETS, DataSet, SetLocation
from spotctl.agent.data.transfer import local_copy
from spotctl.agent.errors import TransferFailed
from tests.servers.loopback import Fault
from tests.servers.objects import Stored
from tests.spotctl.run.stored_data.buckets import Bucket, bucket_and_corpus
from tests.spotctl.run.stored_data.test_storing import files
from tests.waiting import eventually

_FETCH = """\
from pathlib import Path
from spotctl.agent.data.transfer import local_copy
local_copy({!r}, Path({!r}))
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket_and_corpus(tmp_path, monkeypatch) as bucket:
        yield bucket


def test_a_fetch_that_is_killed_goes_on_where_it_was(bucket: Bucket, tmp_path: Path) -> None:
    """What has arrived whole is not fetched again, and what has not is not used."""
    for number in range(40):
        (bucket.data / str(number)).write_bytes(bytes([number]) * 2000)
    place, cache = bucket.launched(), tmp_path / "cache"
    bucket.server.requests.clear()
    bucket.server.faults.append(Fault(FILES, skip=20, times=-1, delay_seconds=60.0))
    process = subprocess.Popen([sys.executable, "-c", _FETCH.format(place, str(cache))])
    eventually(lambda: len(list(cache.glob(".*/*"))) >= 20 + sets.CONNECTIONS)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path for path in cache.iterdir() if not path.name.startswith(".")] == []
    arrived = {path.name for path in cache.glob(".*/*") if not path.name.endswith(".part")}
    assert arrived
    bucket.server.faults.clear()
    bucket.server.requests.clear()
    assert files(local_copy(place, cache)) == files(bucket.data)
    asked = [unquote(call.path) for call in bucket.server.requests]
    again = {path.removeprefix("/bucket/" + FILES) for path in asked if FILES in path}
    assert (
        again
        == {path.removeprefix(FILES) for path in bucket.store.objects if FILES in path} - arrived
    )


def test_damaged_data_is_never_used(bucket: Bucket, tmp_path: Path) -> None:
    place, cache = bucket.launched(), tmp_path / "cache"
    key = next(key for key in bucket.store.objects if FILES in key)
    whole, bucket.store.objects[key] = bucket.store.objects[key], Stored(b"damaged")
    with pytest.raises(
        TransferFailed, match=rf"data {place}: {key} is damaged: remove it from the bucket"
    ):
        local_copy(place, cache)
    del bucket.store.objects[key]
    with pytest.raises(
        TransferFailed, match="it was removed after the launch; launch the job again"
    ):
        local_copy(place, cache)
    # The next launch sends what is missing.
    assert bucket.launched() == place
    assert bucket.store.objects[key].content == whole.content
    assert files(local_copy(place, cache)) == files(bucket.data)


def test_a_list_of_files_cannot_leave_the_cache(bucket: Bucket, tmp_path: Path) -> None:
    for evil in (
        DataSet("x", folders={"x": 0o755, "x/../../evil": 0o755}),
        DataSet("..", folders={"..": 0o755}),
        DataSet("x", folders={"x": 0o755}, links={"x/out": "../../evil"}),
        DataSet("x", folders={"x": 0o755}, links={"x/out": "/etc"}),
    ):
        bucket.store.objects[SETS + evil.digest] = Stored(evil.content())
        with pytest.raises(TransferFailed, match="outside of its folder"):
            local_copy(str(SetLocation("gs://bucket", evil.digest)), tmp_path / "cache")
