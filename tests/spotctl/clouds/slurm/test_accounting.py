"""Slurm's own accounting, by slurmdbd on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

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
    for program in ("sleep 100", "sleep 3"):
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
