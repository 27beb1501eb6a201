"""A command's environment on simulated clouds: built on the first machine, and kept in the bucket
for the one after an eviction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent.data.locations import place_of
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running, spot
from tests.spotctl.agent.environment.wheels import wheel

JOB = """\
name: with-packages
kind: command
run: . ./work.sh
workdir: work
hours: 1h
env: {{UV_FIND_LINKS: wheels, UV_OFFLINE: 1}}
identity: {{{cloud}: {identity}}}
outputs: {{model: {bucket}/job/model/}}
checkpoint: {{path: {bucket}/job/checkpoints/, every: 1s}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""
WORK = """\
kept=$SPOTCTL_CHECKPOINT_DIR/step
if [ -e "$kept" ]; then
  echo "$(cat "$kept"), then $(spotone)" >"$OUTPUT_MODEL/model"
  exit
fi
python -c "import spotone; print('began with', spotone.version)" >"$kept"
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
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def test_the_next_machine_has_the_environment_that_the_first_has_built(
    cloud: SimulatedCloud, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job = laptop.job(JOB.format(cloud=cloud.name, **values))
    work = laptop.folder / "work"
    (work / "work.sh").write_text(WORK)
    (work / "requirements.txt").write_text("spotone\n")
    wheel(work / "wheels", "spotone")
    store = place_of(cloud.bucket, LAUNCHER)
    assert store is not None
    planned = " ".join(laptop.run("plan", job).stdout.split())
    assert f"requirements.txt, built on each machine, and kept at {cloud.bucket}" in planned

    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        # The environment is stored while the program works.
        launched.wait_for(lambda: any(store.bucket.list("job/checkpoints/environments/")))
        launched.wait_for(lambda: any(store.bucket.list("job/checkpoints/node-0/")))
        (first,) = spot(cloud.server)
        cloud.server.evict(first.id, 30.0)
        code, out, err = launched.ended()

    assert code == 0, err
    assert json.loads(out)["outcome"] == "done"
    model = b"".join(store.bucket.get("job/model/model")).decode()
    assert model == "began with 1.0, then 1.0\n"
    said = laptop.run("logs", "with-packages").stdout
    assert "environment: built in" in said
    assert f"environment: from {cloud.bucket}/job/checkpoints/environments in" in said
    assert (running(cloud.server), cloud.server.resources()) == ([], ())
