"""Slurm's own accounting, by slurmdbd on a real cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bidbrain.eviction.hazard import evidence_of_spans
from pricing_data.availability import AvailabilitySpan
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, MINUTE
from spotctl.clouds.slurm.cloud import SlurmSettings
from spotctl.clouds.slurm.prices import PAST, SlurmSource
from spotctl.home.wall_clock import wall_us
from tests.servers.slurm_cluster import (
    SlurmCluster,
    needs_accounting,
    needs_slurm,
    run,
    slurm_cluster,
)
from tests.spotctl.clouds.slurm.test_nodes import SLURM, launched, made_home
from tests.spotctl.clouds.slurm.world import SPOT
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm, needs_accounting]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=2, grace=2, accounting=True) as made:
        yield made


def lives() -> tuple[AvailabilitySpan, ...]:
    tasks = SlurmSource(SlurmSettings()).tasks(FetchRequest(wall_us() - DAY, wall_us()))
    (task,) = [task for task in tasks if task.what == PAST]
    return next(task.pull()).availability


def test_lives_of_preemptible_jobs_are_evidence(cluster: SlurmCluster) -> None:
    for program in ("sleep 1000", "sleep 3"):
        words = ("--exclusive", "--no-requeue", "-o", "/dev/null", "--wrap", program)
        run("sbatch", "-p", "spot", *words)
    run("sbatch", "-p", "spot", "--job-name", "spotctl-own", "-o", "/dev/null", "--wrap", "true")
    eventually(lambda: len(run("squeue", "-h", "-t", "COMPLETED").split("\n")) > 2)
    cluster.take(2, seconds=2)
    eventually(lambda: {life.ended for life in lives()} == {"evicted", "returned"})
    known = lives()
    assert {life.market for life in known} == {SPOT}
    assert all(0 < life.until - life.since < 5 * MINUTE for life in known)
    assert len({life.source for life in known}) == len(known) == 2
    (evidence,) = evidence_of_spans(known, max(life.until for life in known))
    assert round(evidence.exposure.evictions, 3) == 1


def test_a_bill_of_slurm_has_the_hours_of_the_ledger(cluster: SlurmCluster, tmp_path: Path) -> None:
    home = made_home(cluster, tmp_path)
    job = {"name": "short", "kind": "command", "run": "sleep 45", "hours": "1m", "nodes": 2}
    assert launched(home, job | {"resources": SLURM}).wait(300) == 0
    eventually(lambda: not cluster.alive())
    words = ("sacct", "--allocations", "--parsable2", "--delimiter=,")
    columns = "--format=JobID,JobName,State,Start,End"
    variables = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "%FT%TZ"}

    def listed() -> str:
        done = subprocess.run((*words, columns), env=variables, capture_output=True, check=True)
        return done.stdout.decode()

    def ended() -> list[str]:
        ours = [line for line in listed().splitlines() if "@0.1" in line]
        return [line for line in ours if "RUNNING" not in line]

    eventually(lambda: len(ended()) == 2)
    (tmp_path / "jobs.csv").write_text(listed())
    said = home.spotctl("report", "reconcile", "--bill", "jobs.csv", "--tolerance", "0.3")
    assert "no differences" in said
    assert "compared 2 machines and 2 bill lines of slurm" in said
