"""A runner on a rented machine: it goes on without the computer that launched it, and obeys another
one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, sampled, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import running, spot

JOB = """\
name: counting
kind: command
run: for i in $(seq 100000); do echo "count $i"; sleep 1; done
workdir: work
hours: 1h
identity: {{{cloud}: {identity}}}
outputs: {{counts: {bucket}/counting/}}
resources:
  clouds: [{cloud}]
  regions: [{region}]
  types: [{type}]
  reliable: {{machines: 1}}
"""

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=sampled("aws"))
def cloud(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        yield found


def test_a_run_goes_on_without_its_launcher_and_obeys_another_computer(
    cloud: SimulatedCloud, tmp_path: Path
) -> None:
    """The launcher is killed and its home deleted; another computer attaches by the place alone,
    and stops the run.
    """
    first, second = (Laptop(tmp_path / name, cloud.environment) for name in ("first", "second"))
    first.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    job = first.job(
        JOB.format(
            cloud=cloud.name,
            identity=cloud.identity,
            bucket=cloud.bucket,
            region=cloud.region,
            type=cloud.type,
        )
    )
    with first.launched("launch", job, "--yes") as launched:
        launched.wait_for(lambda: len(running(cloud.server)) == 2)
        place = json.loads((first.home / "elsewhere" / "counting" / "place.json").read_text())
        launched.kill()
    shutil.rmtree(first.home)

    with second.launched("resume", place["location"]) as watching:
        known = second.home / "elsewhere" / "counting" / "place.json"
        watching.wait_for(
            lambda: known.exists() and json.loads(known.read_text())["run"] == place["run"]
        )
    second.wait_until(lambda: "count 3" in second.run("logs", "counting").stdout)
    (status,) = second.answer("status", "counting")["jobs"]
    assert (status["run"], status["state"], len(status["machines"])) == (place["run"], "running", 2)
    said = second.run("exec", "counting", "--node=1", "--", "sh", "-c", "echo here; exit 7")
    assert (said.returncode, said.stdout.strip()) == (7, "here"), said.stderr
    (spot_machine,), host = spot(cloud.server), cloud.host
    assert isinstance(host, Namespaces)
    host.cut(host.at(spot_machine.private))
    (node,) = (one["id"] for one in status["machines"] if one["id"].endswith(spot_machine.id))
    said = second.run("exec", "counting", f"--node={node}", "--", "true")
    host.plug_in(host.at(spot_machine.private))
    assert (said.returncode, len(said.stderr.splitlines())) == (1, 1), said.stderr
    assert node in said.stderr
    assert "cut off from the network" in said.stderr

    # Its budget is set on that machine, where a lower one than what is committed is refused.
    assert second.answer("resume", "counting", "--budget", "9")["budget_usd"] == 9.0
    assert second.answer("resume", "counting", "--budget", "8")["earlier_usd"] == 9.0
    refused = second.run("resume", "counting", "--budget", "0.0001")
    assert (refused.returncode, "is spent, or committed" in refused.stderr) == (2, True), (
        refused.stderr
    )

    ended = second.answer("stop", "counting")
    assert (ended["run"], ended["outcome"]) == (place["run"], "stopped")
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()
    assert "count 3" in second.run("logs", "counting").stdout
    assert second.answer("report", "cost")
    # The keys of the run are gone.
    assert not (second.home / "elsewhere" / "counting").exists()
