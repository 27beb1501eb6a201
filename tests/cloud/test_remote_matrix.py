"""Commands and trainings with a runner on a rented machine, done, stopped and failed: what is left,
and its cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moto.s3.models import s3_backends

from tests.cloud.api import Rented
from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = """\
name: kept
kind: command
run: echo saved > $SPOTCTL_CHECKPOINT_DIR/step; echo 42 > $OUTPUT_RESULT/answer; echo began; {program}
workdir: work
hours: 1h
checkpoint: {{path: {bucket}/kept/, every: 2s}}
outputs: {{result: {bucket}/kept-out/}}
identity: {{{cloud}: {identity}}}
resources:
  clouds: [{cloud}]
  regions: [{region}]
  types: [{type}]
  reliable: {{machines: 1}}
"""
TRAINING = """\
name: kept
kind: agileml
app: line:Line
args: {{pause: 0.02}}
workdir: work
stop: {{clocks: {program}}}
throughputs: {{{type}: 600}}
outputs: {{model: {bucket}/kept-out/}}
identity: {{{cloud}: {identity}}}
resources:
  clouds: [{cloud}]
  regions: [{region}]
  types: [{type}]
  machines: 2
  reliable: {{machines: 1, type: {type}}}
"""


@dataclass(frozen=True)
class Work:
    """A job file, what its program is for each outcome, and the beginnings of the objects that it
    leaves.
    """

    job: str
    programs: Mapping[str, str]
    left: Mapping[str, tuple[str, ...]]


WORKS = {
    "command": Work(
        COMMAND,
        {"done": "sleep 5", "stopped": "sleep 3600", "failed": "sleep 5; exit 7"},
        {"done": ("kept/", "kept-out/answer"), "stopped": ("kept/",), "failed": ("kept/",)},
    ),
    "training": Work(
        TRAINING,
        {"done": "40", "stopped": "1000000", "failed": "1000000"},
        {"done": ("kept-out/model",), "stopped": ("kept-out/",), "failed": ("kept-out/",)},
    ),
}
OUTCOMES = ("done", "stopped", "failed")
KINDS = {True: ("spot machines",), False: ("reliable machines", "on-demand machines")}
"""The rows of a report that are about machines, by whether they are spot machines."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("kind", WORKS)
@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_the_results_are_kept_the_bill_agrees_and_nothing_runs(
    name: str, kind: str, outcome: str, tmp_path: Path
) -> None:
    work = WORKS[kind]
    with simulated(name) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", cloud.type
        )
        places = {
            "bucket": cloud.bucket,
            "region": cloud.region,
            "type": cloud.type,
            "identity": cloud.identity,
        }
        job = laptop.job(work.job.format(cloud=name, program=work.programs[outcome], **places))
        if kind == "training" and outcome == "failed":
            trainer = tmp_path / "work" / "line.py"
            trainer.write_text(
                trainer.read_text().replace("time.sleep(self.pause)", "assert clock < 20")
            )
        with laptop.launched("launch", job, "--yes", "--json") as launched:
            if outcome == "stopped":
                launched.wait_for(lambda: has_begun(laptop, kind))
                stopped = laptop.answer("stop", "kept")
                assert stopped["outcome"] == "stopped"
            code, out, err = launched.ended()
        assert out, err
        answer = json.loads(out)
        assert (answer["outcome"], code == 0) == (outcome, outcome != "failed"), err + out
        assert running(cloud.server) == []
        agrees_with_bill(cloud, laptop)
        kept = stored(cloud)
        for beginning in work.left[outcome]:
            assert any(key.startswith(beginning) for key in kept), sorted(kept)
        assert cloud.server.resources() == ()


def has_begun(laptop: Laptop, kind: str) -> bool:
    """Whether the work has come some way, as far as the runner says."""
    if kind == "command":
        return "began" in laptop.run("logs", "kept").stdout
    status = laptop.run("status", "kept", "--json")
    return status.returncode == 0 and (json.loads(status.stdout)["jobs"][0]["clock"] or 0) >= 3


def agrees_with_bill(cloud: SimulatedCloud, laptop: Laptop) -> None:
    """The report and the cloud's books differ by less than 20 seconds of each machine: those of its
    end.
    """
    report: dict[str, Any] = laptop.answer("report", "cost", "--by", "kind")
    books = cloud.server.machines()
    # Azure bills full minutes.
    seconds, unit = (80.0, 60.0) if cloud.name == "azure" else (20.0, 1.0)
    usd_per_second = max(
        machine.usd / max(lasted(machine) // unit * unit, 60.0) for machine in books
    )
    reported = {
        spot: sum(row["total_usd"] for row in report["groups"] if row["kind"] in kinds)
        for spot, kinds in KINDS.items()
    }
    for spot in KINDS:
        billed = [machine.usd for machine in books if machine.spot is spot]
        assert reported[spot] == pytest.approx(
            sum(billed), abs=seconds * usd_per_second * len(billed)
        ), report


def lasted(machine: Rented) -> float:
    """Seconds in the books."""
    assert machine.ended is not None
    return (machine.ended - machine.started) / 1e6


def stored(cloud: SimulatedCloud) -> frozenset[str]:
    """The keys of all objects in the cloud's bucket."""
    server = cloud.server
    if isinstance(server, AwsServer):
        return frozenset(s3_backends[server.account]["aws"].buckets[server.bucket].keys)
    assert isinstance(server, AzureServer | GcpServer)
    return frozenset(server.buckets.store.objects)
