"""A local data folder on machines of simulated clouds: stored once, fetched by each machine, and
then only changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from spotctl.agent.data.locations import place_of
from spotctl.agent.data.sets import FILES
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, sampled, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop

JOB = """\
name: reading
kind: command
run: cd "$DATA_CORPUS" && find . -type f | sort | xargs cat >"$OUTPUT_READ/read"
workdir: work
nodes: 2
hours: 1h
identity: {{{cloud}: {identity}}}
data: {{corpus: corpus}}
outputs: {{read: {bucket}/read/}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=sampled("gcp"))
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def moved(cloud: SimulatedCloud, method: str) -> list[str]:
    """The requests of a kind to files of data, which are then forgotten; None are known of a bucket
    of moto's.
    """
    if not isinstance(cloud.server, GcpServer):
        return []
    paths = [
        unquote(call.path) for call in cloud.server.buckets.server.requests if call.method == method
    ]
    return [path.rpartition("/")[2] for path in paths if f"/{FILES}" in path]


def test_a_second_launch_sends_only_the_file_that_has_changed(
    cloud: SimulatedCloud, tmp_path: Path
) -> None:
    """Machines fetch all of it from the bucket, each once, as their own identity."""
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job, corpus = laptop.job(JOB.format(cloud=cloud.name, **values)), laptop.folder / "corpus"
    (corpus / "deep").mkdir(parents=True)
    (corpus / "a").write_text("first ")
    (corpus / "deep" / "b").write_text("second ")
    said = launched(laptop, job)
    assert "data corpus: 2 files, 13 bytes, in " in said
    assert "2 of them sent, 13 bytes" in said
    store = place_of(cloud.bucket, LAUNCHER)
    assert store is not None
    for node in ("", "node-1/"):
        assert b"".join(store.bucket.get(f"read/{node}read")) == b"first second "
    files = sorted(key.removeprefix(FILES) for key in store.bucket.list(FILES))
    assert len(files) == 2
    if isinstance(cloud.server, GcpServer):
        assert sorted(moved(cloud, "GET")) == sorted(files * 2)
        cloud.server.buckets.server.requests.clear()
    (corpus / "a").write_text("changed ")
    assert "1 of them sent, 8 bytes" in launched(laptop, job)
    for node in ("", "node-1/"):
        assert b"".join(store.bucket.get(f"read/{node}read")) == b"changed second "
    if isinstance(cloud.server, GcpServer):
        assert len(moved(cloud, "PUT")) == 1
        assert len(moved(cloud, "GET")) == 4
    assert laptop.answer("gc", "--yes", "--data-days", "1")["data"] == []


def launched(laptop: Laptop, job: Path) -> str:
    ended = laptop.run("launch", job, "--attached", "--yes", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["outcome"] == "done"
    return ended.stderr
