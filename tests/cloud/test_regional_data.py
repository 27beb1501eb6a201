"""A data folder on machines in two regions of a simulated cloud: copied once to the second region's
bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from spotctl.agent.data.sets import FILES, FOLDER, WHOLE
from spotctl.home.paths import Paths
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop

HOME, AWAY = "asia-east1", "us-central1"
JOB = """\
name: reading
kind: command
run: '[ "$SPOTCTL_ATTEMPT" -ge 3 ] || sleep 900; cat "$DATA_CORPUS"/* >"$OUTPUT_READ/read"'
workdir: work
hours: 1h
deadline: 9h
identity: {{gcp: {cloud.identity}}}
data: {{corpus: corpus}}
data_buckets: {{{HOME}: {cloud.bucket}, {AWAY}: gs://away}}
checkpoint: {{path: {cloud.bucket}/ckpt/, size: 1MB}}
outputs: {{read: {cloud.bucket}/read/}}
resources: {{clouds: [gcp], regions: [{HOME}, {AWAY}], types: [{cloud.type}]}}
"""
NO_ROOM = "ZONE_RESOURCE_POOL_EXHAUSTED"

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture
def cloud() -> Iterator[SimulatedCloud]:
    with simulated("gcp") as cloud:
        yield cloud


def test_the_second_machine_of_a_region_reads_the_copy_there(
    cloud: SimulatedCloud, tmp_path: Path
) -> None:
    """The store makes the copy itself when the first machine is rented there."""
    laptop, server = Laptop(tmp_path, cloud.environment), cloud.server
    assert isinstance(server, GcpServer)
    away, requests = server.buckets.store.add("away"), server.buckets.server.requests
    for region in (HOME, AWAY):
        laptop.run("prices", "fetch", "--cloud", "gcp", "--region", region, "--type", cloud.type)
    job, corpus = (
        laptop.job(JOB.format(cloud=cloud, HOME=HOME, AWAY=AWAY)),
        laptop.folder / "corpus",
    )
    corpus.mkdir()
    for name in "ab":
        (corpus / name).write_text(name * 10)

    def at_work(region: str) -> list[str]:
        return [one.id for one in server.machines() if one.ended is None and region in one.market]

    def fetched() -> list[str]:
        """The buckets from which machines have fetched files of the data, once for each file."""
        return sorted(
            call.path.split("/")[1]
            for call in requests
            if call.method == "GET" and FILES in unquote(call.path)
        )

    def attempts() -> int:
        """How often the program was started. A machine that is evicted before that counts for
        none."""
        with EventLog(Paths(laptop.home).log) as log:
            run = latest_run(log, "reading")
        return 0 if run is None else run.work.number

    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(lambda: fetched() == ["results"] * 2 and attempts() == 1)
        (first,) = at_work(HOME)
        assert not any(key.startswith(FILES) for key in away.objects)
        server.project.refuse(f"{HOME}-a", NO_ROOM, 99)
        server.evict(first, 10.0)
        launched.wait_for(lambda: any(key.startswith(WHOLE) for key in away.objects))
        launched.wait_for(lambda: len(fetched()) == 4 and attempts() == 2)
        (second,) = at_work(AWAY)
        requests.clear()
        server.evict(second, 10.0)
        code, out, err = launched.ended()
    assert (code, json.loads(out)["outcome"]) == (0, "done"), err
    assert "data corpus: 2 files, 20 bytes, copied to gs://away for machines in us-central1" in err
    assert fetched() == ["away"] * 2
    assert not [call for call in requests if "rewriteTo" in call.path]
    assert server.buckets.store.objects["read/read"].content == b"a" * 10 + b"b" * 10
    assert not any(FOLDER not in key for key in away.objects)
