"""A job in containers on simulated clouds, from the job file to its output: one eviction, and
secrets found nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent.data.locations import place_of
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, simulated
from tests.cloud.figures import requests_to
from tests.cloud.laptop import Laptop
from tests.cloud.machine_init import REGISTRY
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import running, spot
from tests.servers.loopback import serving
from tests.servers.registry import Registry, layer_of

SECRETS = {"TOKEN": "planted-token", "LOGIN": "user:planted-password"}
JOB = """\
name: contained
kind: command
setup: echo "set up $OF_IMAGE" >/tmp/setup
run: . ./work.sh
workdir: work
hours: 1h
secrets: [TOKEN, LOGIN]
identity: {{{cloud}: {identity}}}
image: {{container: "{image}", login: LOGIN}}
data: {{start: {bucket}/job/start/}}
outputs: {{model: {bucket}/job/model/}}
checkpoint: {{path: {bucket}/job/checkpoints/, every: 1s}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""
WORK = """\
kept=$SPOTCTL_CHECKPOINT_DIR/step
if [ -e "$kept" ]; then
  echo "$(cat /tmp/setup), $(cat "$DATA_START/given"), $(cat "$kept"), ${#TOKEN}, '$LOGIN'" >"$OUTPUT_MODEL/model"
  exit
fi
trap 'echo "saved at the end" >"$kept"; exit 1' TERM
echo "saved early" >"$kept"
sleep 100000 &
wait
"""

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.skipif(not EVERYTHING, reason="takes long; make cloud-all runs it"),
]


@pytest.fixture(params=["aws", "azure", "gcp"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        for name, value in {**found.environment, **SECRETS}.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def registry(cloud: SimulatedCloud) -> Iterator[str]:
    """The registry as machines see it."""
    images = Registry(SECRETS["LOGIN"])
    images.add("app", layer_of(("sh", "cat", "sleep")))
    with serving(images) as server:
        port = cloud.host.reach(int(server.url.rpartition(":")[2])).rpartition(":")[2]
        yield f"{REGISTRY}:{port}"


def test_a_job_in_containers_survives_an_eviction_and_leaves_nothing(
    cloud: SimulatedCloud, registry: str, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    assert isinstance(cloud.host, Namespaces)
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job = laptop.job(JOB.format(cloud=cloud.name, image=f"{registry}/app", **values))
    (laptop.folder / "work" / "work.sh").write_text(WORK)
    store = place_of(cloud.bucket, LAUNCHER)
    assert store is not None
    store.bucket.put("job/start/given", b"a start")
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(lambda: any(store.bucket.list("job/checkpoints/")))
        (first,) = spot(cloud.server)
        assert cloud.host.holders(cloud.host.at(first.private), "planted") == set()
        cloud.server.evict(first.id, 30.0)
        code, out, err = launched.ended()
    assert code == 0, err
    assert json.loads(out)["outcome"] == "done"
    # The second container has what the first one saved when it was told of its eviction, and the
    # secrets but the login.
    model = b"".join(store.bucket.get("job/model/model")).decode()
    assert model == "set up yes, a start, saved at the end, 13, ''\n"
    assert (len(cloud.server.machines()), running(cloud.server), cloud.server.resources()) == (
        2,
        [],
        (),
    )
    assert all(b"planted" not in request.body for request in requests_to(cloud))
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and b"planted" in path.read_bytes()
    ] == []
    assert "planted" not in out + err
