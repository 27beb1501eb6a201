"""A command's environment on simulated clouds, from each of the files that name one, and from an
image: built on the first machine, and kept in the bucket for the one after an eviction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spotctl.agent.data.locations import place_of
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import EVERYTHING, WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.machine_init import REGISTRY
from tests.cloud.test_launch import running, spot
from tests.servers.loopback import serving
from tests.servers.registry import Registry, layer_of
from tests.spotctl.agent.environment.channels import channel, wheel_of_installed
from tests.spotctl.agent.environment.wheels import LOCK, PROJECT, wheel

JOB = """\
name: with-packages
kind: command
run: . ./work.sh
workdir: work
environment: {environment}
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
echo "began with $(spotone)" >"$kept"
sleep 100000 &
wait
"""

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.skipif(not EVERYTHING, reason="takes long; make cloud-all runs it"),
]


FORMS = {
    "requirements.txt": {"requirements.txt": "spotone\n"},
    "uv.lock": {"uv.lock": LOCK.format(index="wheels"), "pyproject.toml": PROJECT},
    "pyproject.toml": {"pyproject.toml": PROJECT},
    "environment.yml": {"environment.yml": "channels: [./channel]\ndependencies: [spotone]\n"},
}
"""Files of a folder, by the one that names its environment."""
IMAGE = "image"

CASES = [
    ("aws", "requirements.txt"),
    ("azure", "requirements.txt"),
    ("gcp", "requirements.txt"),
    ("aws", "uv.lock"),
    ("gcp", "pyproject.toml"),
    ("azure", "environment.yml"),
    ("aws", IMAGE),
]


@pytest.fixture
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def image(cloud: SimulatedCloud, tmp_path: Path) -> Iterator[str]:
    """An image, as machines see it, with a program that only its own PATH leads to."""
    program = tmp_path / "of-image" / "spotone"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 1.0\n")
    program.chmod(0o755)
    images = Registry()
    path = f"{program.parent}:/bin:/usr/bin"
    images.add("app", layer_of(("sh", "cat", "sleep"), [program]), path=path)
    with serving(images) as server:
        port = cloud.host.reach(int(server.url.rpartition(":")[2])).rpartition(":")[2]
        yield f"{REGISTRY}:{port}/app"


@WHOLE_RUN
@pytest.mark.parametrize(("cloud", "form"), CASES, indirect=["cloud"])
def test_the_next_machine_has_the_environment_that_the_first_has_built(
    cloud: SimulatedCloud, form: str, image: str, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    values["environment"] = f"docker:{image}" if form == IMAGE else form
    job = laptop.job(JOB.format(cloud=cloud.name, **values))
    work = laptop.folder / "work"
    for name, text in {"work.sh": WORK, **FORMS.get(form, {})}.items():
        (work / name).write_text(text)
    wheel(work / "wheels", "spotone")
    if form == "environment.yml":
        pytest.importorskip("rattler", reason="py-rattler installs conda's packages")
        wheel_of_installed(work / "wheels", "py-rattler")
        channel(work / "channel", "spotone")
    store = place_of(cloud.bucket, LAUNCHER)
    assert store is not None
    kept = f"{cloud.bucket}/job/checkpoints/environments"
    listed = store.bucket.list

    def is_kept(folder: str) -> bool:
        return any(listed(f"job/checkpoints/{folder}"))

    planned = " ".join(laptop.run("plan", job).stdout.split())
    is_built = form != IMAGE
    assert (f"{form}, built on each machine, and kept at {kept}" in planned) == is_built

    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        # The environment is stored while the program works.
        for folder in (*(["environments/"] if is_built else []), "node-0/"):
            launched.wait_for(partial(is_kept, folder))
        (first,) = spot(cloud.server)
        cloud.server.evict(first.id, 30.0)
        code, out, err = launched.ended()

    assert code == 0, err
    assert json.loads(out)["outcome"] == "done"
    model = b"".join(store.bucket.get("job/model/model")).decode()
    assert model == "began with 1.0, then 1.0\n"
    said = laptop.run("logs", "with-packages").stdout
    assert ("environment: built in" in said) == is_built
    assert (f"environment: from {kept} in" in said) == is_built
    assert (running(cloud.server), cloud.server.resources()) == ([], ())
