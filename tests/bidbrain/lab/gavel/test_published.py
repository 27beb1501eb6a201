"""Twelve random streams of jobs as the published simulator ran them (`shared/data/gavel/published`), job by job."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from bench.gavel_simulator import MISLABELED, WAYS
from bidbrain.arrays import Floats
from bidbrain.gavel.policies.base import Policy, Warm
from bidbrain.gavel.policies.fairness import makespan_policy
from bidbrain.gavel.policies.linear import most_worth
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation, ShareColumns
from bidbrain.lab.gavel.simulator.dispatch import ByShares, Dispatcher, DispatchRules
from bidbrain.lab.gavel.simulator.engine import SimulationOutcome, simulate
from bidbrain.lab.gavel.simulator.results import summarize
from bidbrain.lab.gavel.workload import ClusterSimulation
from spotctl.lab.gavel.throughputs_file import read_throughputs, read_trace

TYPES, USD_PER_HOUR = ("v100", "p100", "k80"), np.array([0.74, 0.43, 0.135])
NEAR, EQUAL = 0.03, 0.001
MakeDispatcher = Callable[[ClusterSimulation], Dispatcher]
Figures = dict[str, float]

RUNS = (
    *((stream, "min_total_duration_perf") for stream in ("batch_m", "batch_s", "bs0", "bs1")),
    *(("batch_s", f"max_sum_throughput_{kind}") for kind in ("normalized_by_cost_perf", "perf")),
    *((stream, "fifo_perf") for stream in ("om0", "om1", "online_m")),
    *((stream, "finish_time_fairness_perf") for stream in ("online_m", "os0", "os1")),
    *((stream, "max_min_fairness_perf") for stream in ("online_m", "os0", "os1", "pm0", "pm1", "prio_m")),
    *(("online_m", policy) for policy in ("fifo", "isolated", "max_min_fairness")),
    *((stream, "allox") for stream in ("os0", "os1")),
)


@dataclass(frozen=True)
class StepsPerSecond:
    """The published objective of `max_sum_throughput_perf`: jobs with short steps count more."""

    def __call__(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        columns = ShareColumns.of(problem)
        shares, value = most_worth(columns, problem.jobs.throughputs[columns.row, columns.type])
        return ClusterAllocation(shares, np.zeros(len(shares)), value)


@dataclass(frozen=True)
class BisectedMakespan:
    """The published bisection of the makespan, which ends up to 5% above the least, and the X that ECOS returns for the
    last makespan: a program without an objective."""

    def __call__(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        ecos = pytest.importorskip("ecos")
        jobs, workers = problem.jobs, problem.cluster.workers
        least = makespan_policy(replace(problem, centered=False), warm).objective
        low, high = 100.0, 1e6
        while 1.05 * low < high:
            middle = (low + high) / 2
            low, high = (low, middle) if middle >= least * (1 - 1e-9) else (middle, high)
        count, types = jobs.throughputs.shape
        cell = np.arange(count * types)
        held = np.repeat(jobs.scale, types).astype(np.float64)
        rows = (
            -sparse.eye_array(len(cell)),
            sparse.csr_array((held, (cell % types, cell))),
            sparse.csr_array((np.ones(len(cell)), (cell // types, cell))),
            sparse.csr_array((-jobs.throughputs.ravel(), (cell // types, cell))),
        )
        most = np.concatenate([np.zeros(len(cell)), workers, np.ones(count), -jobs.steps / high])
        cones = {"l": len(most), "q": [], "e": 0}
        matrix = sparse.csc_matrix(sparse.vstack(rows))
        x = ecos.solve(np.zeros(len(cell)), matrix, most, cones, verbose=False)["x"]
        return ClusterAllocation(np.clip(x.reshape(count, types), 0, 1), np.zeros(count), high)


@dataclass
class LastTypeQueue:
    """The published queue: it draws a type, and then takes the last type in the alphabet that has free workers,
    although the job may need more of them than are free."""

    type_of: dict[str, int] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __call__(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        ids, free = problem.jobs.ids, problem.cluster.workers.copy()
        scale = dict(zip(ids, problem.jobs.scale.tolist(), strict=True))
        rate = dict(zip(ids, problem.jobs.throughputs, strict=True))
        waiting = [name for name in ids if name not in self.type_of]
        for name in sorted(self.type_of, key=int):
            kind = self.type_of[name]
            if name in scale:
                free[kind] -= scale[name]
                continue
            del self.type_of[name]
            if waiting and scale[waiting[0]] <= free[kind] and rate[waiting[0]][kind] > 0:
                self.type_of[waiting[0]] = kind
                free[kind] -= scale[waiting.pop(0)]
        there = [kind for kind in np.argsort(problem.cluster.types).tolist() if free[kind] > 0]
        for name in waiting:
            room = [kind for kind in there if free[kind] >= scale[name]]
            if not room:
                break
            drawn, kind = room[self.rng.randrange(len(room))], there[-1]
            if rate[name][kind] > 0:
                self.type_of[name] = kind
                free[kind] -= scale[name]
                if free[kind] == 0:
                    there.remove(drawn)
        shares = np.zeros(problem.jobs.throughputs.shape)
        for m, name in enumerate(ids):
            if name in self.type_of:
                shares[m, self.type_of[name]] = 1.0
        return ClusterAllocation(shares, np.zeros(len(ids)), 0.0)


@dataclass(frozen=True)
class Difference:
    """Why a run differs by more than 3%, and the published rule, for our simulator."""

    reason: str
    published_rule: Callable[[], Policy]
    rules: DispatchRules = field(default_factory=DispatchRules)


DIFFERENCES = {
    "min_total_duration_perf": Difference(
        "the published makespan is bisected until it is at most 5% above the least, and any X that reaches it will do;"
        " ours is the least, and X the center of all that reach it, so that most jobs are done earlier",
        BisectedMakespan,
    ),
    "max_sum_throughput_perf": Difference(
        "the published sum counts steps, which are short in LM and Recommendation jobs; ours counts parts of each job's"
        " best throughput",
        StepsPerSecond,
    ),
    "fifo": Difference(
        "the published queue takes the last type that has any free worker, and jobs with more workers then wait there",
        LastTypeQueue,
        DispatchRules(beyond_shares=False, debt_rounds=np.inf),
    ),
}


@dataclass(frozen=True)
class PublishedRun:
    asked: ClusterSimulation
    figures: Figures
    completion: Floats


def published_run(folder: Path, stream: str, policy: str) -> PublishedRun:
    with (folder / "published" / "results.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if (row["stream"], row["policy"]) == (stream, policy))
    with gzip.open(folder / "published" / "completion_times.csv.gz", "rt") as file:
        times = [row for row in csv.DictReader(file) if (row["stream"], row["policy"]) == (stream, policy)]
    table = read_throughputs(folder / "simulation_throughputs.json.gz").on(TYPES)
    workload = read_trace(folder / "published" / f"{stream}.csv.gz", table, 0)[0]
    workers = MISLABELED.get((stream, policy), row["v100:p100:k80"]).split(":")
    cluster = Cluster(TYPES, np.array(workers, dtype=np.float64), USD_PER_HOUR)
    names = ("mean_jct_s", "makespan_s", "utilization", "busy_cost_usd")
    return PublishedRun(
        ClusterSimulation(workload, cluster, range(len(workload.names))),
        {name: float(row[name]) for name in names},
        np.array([float(time["completion_s"]) for time in sorted(times, key=lambda time: int(time["job"]))]),
    )


def differences(run: PublishedRun, outcome: SimulationOutcome) -> Figures:
    """Our figures over the published ones, less 1."""
    summary = summarize(outcome)
    ours = (summary.average_jct_seconds, summary.makespan_seconds, summary.utilization, summary.cost_usd or 0.0)
    return {name: mine / figure - 1 for (name, figure), mine in zip(run.figures.items(), ours, strict=True)}


def far(found: Figures, most: float = NEAR) -> list[str]:
    return [f"{name} {value:+.1%}" for name, value in found.items() if abs(value) > most]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("stream", "policy"), RUNS)
def test_a_published_run_is_matched_within_three_percent_or_its_difference_explained(
    shared_data: Path, stream: str, policy: str
) -> None:
    run = published_run(shared_data / "gavel", stream, policy)
    found = far(differences(run, simulate(run.asked, WAYS[policy](run.asked))))
    assert not found or policy in DIFFERENCES, f"{found}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("stream", "policy"), [run for run in RUNS if run[1] in DIFFERENCES])
def test_with_the_published_rule_the_explained_differences_vanish(shared_data: Path, stream: str, policy: str) -> None:
    run, difference = published_run(shared_data / "gavel", stream, policy), DIFFERENCES[policy]
    make = partial(ByShares, policy=difference.published_rule(), rules=difference.rules)
    outcome = simulate(run.asked, make(run.asked))
    if policy != "max_sum_throughput_perf":
        # Also job by job.
        assert outcome.finish - run.asked.workload.arrival == pytest.approx(run.completion, rel=0.01, abs=400)
        assert not far(differences(run, outcome), EQUAL), difference.reason
    assert not far(differences(run, outcome)), difference.reason


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("stream", "policy"), [run for run in RUNS if run[1] in DIFFERENCES])
def test_where_runs_differ_ours_does_more_with_the_cluster(shared_data: Path, stream: str, policy: str) -> None:
    """Jobs are done earlier on average, or the last of them is, and neither is much later."""
    run = published_run(shared_data / "gavel", stream, policy)
    found = differences(run, simulate(run.asked, WAYS[policy](run.asked)))
    assert min(found["makespan_s"], found["mean_jct_s"]) < 0.0
    assert found["makespan_s"] <= 0.01
    assert found["mean_jct_s"] <= 0.04


def test_the_published_table_is_read_completely(shared_data: Path) -> None:
    with (shared_data / "gavel" / "published" / "results.csv").open() as file:
        assert sorted((row["stream"], row["policy"]) for row in csv.DictReader(file)) == sorted(RUNS)
