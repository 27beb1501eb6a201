"""Published choices, played job by job."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.gavel_simulator import PUBLISHED_POLICIES
from bidbrain.lab.gavel.engine import simulate
from spotctl.lab.gavel.simulate import dispatcher, scenario
from spotctl.lab.papers.gavel import command_options
from tests.bidbrain.lab.gavel.test_published import EQUAL, EXPLAINED, cluster_of, row_of


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("stream", "policy"),
    [run for run in EXPLAINED if run[1] in {"fifo", "min_total_duration_perf"}],
)
def test_published_choices_give_the_published_times_job_by_job(
    shared_data: Path, stream: str, policy: str
) -> None:
    folder, (name, agnostic) = shared_data / "gavel", PUBLISHED_POLICIES[policy]
    options = replace(
        command_options(name, agnostic=agnostic, published="all"),
        trace=folder / "published" / f"{stream}.csv.gz",
        throughputs=folder / "simulation_throughputs.json.gz",
        cluster=cluster_of(row_of(folder, stream, policy)),
    )
    asked, _ = scenario(options)
    outcome = simulate(asked, dispatcher(options, asked))
    with gzip.open(folder / "published" / "completion_times.csv.gz", "rt") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["stream"], row["policy"]) == (stream, policy)
        ]
    times = np.array(
        [float(row["completion_s"]) for row in sorted(rows, key=lambda row: int(row["job"]))]
    )
    assert outcome.finish - asked.workload.arrival == pytest.approx(times, rel=EQUAL, abs=400)
