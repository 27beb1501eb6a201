"""Twelve random streams of jobs as the published simulator ran them
(`shared/data/gavel/published`).

Ours are simulated by the command that a user runs, in published mode and by default.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from bench.gavel_simulator import CAUSES, MISLABELED, PUBLISHED_POLICIES
from bidbrain.gavel.fairness import makespan_policy, max_min_fairness_policy
from bidbrain.gavel.linear import max_throughput_policy
from bidbrain.gavel.problem import BadProblem
from bidbrain.lab.gavel.published import (
    SWITCHES,
    UniformSpeeds,
    bisected_makespan_policy,
    stopped_max_min_policy,
    sum_policy,
)
from tests.bidbrain.gavel.problems import assert_valid, problem
from tests.spotctl.command_line import spotctl

NEAR, EQUAL = 0.03, 0.001
Figures = dict[str, float]

RUNS = (
    *((stream, "min_total_duration_perf") for stream in ("batch_m", "batch_s", "bs0", "bs1")),
    *(("batch_s", f"max_sum_throughput_{kind}") for kind in ("normalized_by_cost_perf", "perf")),
    *((stream, "fifo_perf") for stream in ("om0", "om1", "online_m")),
    *((stream, "finish_time_fairness_perf") for stream in ("online_m", "os0", "os1")),
    *(
        (stream, "max_min_fairness_perf")
        for stream in ("online_m", "os0", "os1", "pm0", "pm1", "prio_m")
    ),
    *(("online_m", policy) for policy in ("fifo", "isolated", "max_min_fairness")),
    *((stream, "allox") for stream in ("os0", "os1")),
)
EXPLAINED = [run for run in RUNS if run[1] in CAUSES]


def row_of(folder: Path, stream: str, policy: str) -> dict[str, str]:
    with (folder / "published" / "results.csv").open() as file:
        return next(
            row
            for row in csv.DictReader(file)
            if (row["stream"], row["policy"]) == (stream, policy)
        )


def cluster_of(row: dict[str, str]) -> str:
    counts = MISLABELED.get((row["stream"], row["policy"]), row["v100:p100:k80"]).split(":")
    return ",".join(
        f"{kind}={count}" for kind, count in zip(("v100", "p100", "k80"), counts, strict=True)
    )


def differences(folder: Path, stream: str, policy: str, switches: str = "") -> Figures:
    """The command's figures over the published ones, less 1."""
    row, (name, agnostic) = row_of(folder, stream, policy), PUBLISHED_POLICIES[policy]
    ended = spotctl(
        "lab", "gavel", "simulate", "--trace", folder / "published" / f"{stream}.csv.gz",
        "--throughputs", folder / "simulation_throughputs.json.gz", "--cluster", cluster_of(row),
        "--prices", "v100=0.74,p100=0.43,k80=0.135", "--policy", name, *(("--agnostic",) if agnostic else ()),
        *(("--published", switches) if switches else ()), "--json",
    )  # fmt: skip
    assert ended.code == 0
    # A job may be dropped before its last steps, as published.
    assert not ended.err or (switches and "dropped" in ended.error)
    ours = [
        ended.json[key]
        for key in ("average_jct_seconds", "makespan_seconds", "utilization", "cost_usd")
    ]
    names = ("mean_jct_s", "makespan_s", "utilization", "busy_cost_usd")
    return {name: mine / float(row[name]) - 1 for name, mine in zip(names, ours, strict=True)}


def far(found: Figures, most: float = NEAR) -> list[str]:
    return [f"{name} {value:+.1%}" for name, value in found.items() if abs(value) > most]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("stream", "policy"), RUNS)
def test_published_mode_is_within_three_percent_and_so_is_the_default_unless_a_switch_explains_it(
    shared_data: Path, stream: str, policy: str
) -> None:
    folder = shared_data / "gavel"
    assert not far(differences(folder, stream, policy, "all"))
    assert policy in CAUSES or not far(differences(folder, stream, policy))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("stream", "policy"), EXPLAINED)
def test_the_switches_that_explain_a_difference_remove_it_and_bring_it_back(
    shared_data: Path, stream: str, policy: str
) -> None:
    folder, causes = shared_data / "gavel", CAUSES[policy]
    assert not far(differences(folder, stream, policy, ",".join(causes)))
    assert far(differences(folder, stream, policy, ",".join(SWITCHES - causes)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("stream", "policy"), [run for run in EXPLAINED if "cost" not in run[1]])
def test_where_runs_differ_ours_does_more_with_the_cluster(
    shared_data: Path, stream: str, policy: str
) -> None:
    """Jobs are done earlier on average, or the last of them is, and neither is much later."""
    found = differences(shared_data / "gavel", stream, policy)
    assert min(found["makespan_s"], found["mean_jct_s"]) < 0.0
    assert found["makespan_s"] <= 0.01
    assert found["mean_jct_s"] <= 0.04


@pytest.mark.parametrize("seed", range(6))
def test_a_bisected_makespan_has_the_shares_at_which_the_published_solver_stops(seed: int) -> None:
    ecos = pytest.importorskip("ecos")
    rng = np.random.default_rng(seed)
    count, types = int(rng.integers(2, 40)), 3
    asked = problem(
        rng.uniform(0.2, 60, (count, types)), rng.integers(1, 9, types) * 3.0,
        scale=rng.choice([1, 2, 4], count), steps=rng.uniform(1e4, 1e7, count),
    )  # fmt: skip
    found = bisected_makespan_policy(asked)
    jobs, least = asked.jobs, makespan_policy(asked).objective
    assert least * (1 - 1e-6) <= found.objective <= 1.06 * least
    assert (found.effective_throughput >= jobs.steps / found.objective * (1 - 1e-6)).all()
    cell, cells = np.arange(count * types), count * types
    held = np.repeat(jobs.scale, types).astype(np.float64)
    rows = (
        -sparse.eye_array(cells),
        sparse.csr_array((held, (cell % types, cell))),
        sparse.csr_array((np.ones(cells), (cell // types, cell))),
        sparse.csr_array((-jobs.throughputs.ravel(), (cell // types, cell))),
    )
    most = np.concatenate(
        [np.zeros(cells), asked.cluster.workers, np.ones(count), -jobs.steps / found.objective]
    )
    cones = {"l": len(most), "q": [], "e": 0}
    x = ecos.solve(
        np.zeros(cells), sparse.csc_matrix(sparse.vstack(rows)), most, cones, verbose=False
    )["x"]
    assert found.shares == pytest.approx(x.reshape(count, types), abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_max_min_fairness_stops_where_the_published_solver_does(seed: int) -> None:
    """Its program has a level after the shares, which each job's weighted throughput exceeds."""
    ecos = pytest.importorskip("ecos")
    rng = np.random.default_rng(seed)
    count, types = int(rng.integers(2, 40)), 3
    asked = problem(
        rng.uniform(0.2, 60, (count, types)), rng.integers(1, 9, types) * 3.0,
        scale=rng.choice([1, 2, 4], count), weight=rng.choice([1.0, 5.0], count),
    )  # fmt: skip
    found, jobs, workers = stopped_max_min_policy(asked), asked.jobs, asked.cluster.workers
    gain = (
        jobs.throughputs
        / (jobs.weight * (jobs.throughputs @ (workers / workers.sum())) / jobs.scale)[:, None]
    )
    cell, cells = np.arange(count * types), count * types
    held, every = np.repeat(jobs.scale, types).astype(np.float64), np.arange(count)
    levels = (
        np.append(-gain.ravel(), np.ones(count)),
        (np.append(cell // types, every), np.append(cell, 0 * every + cells)),
    )
    rows = (
        -sparse.eye_array(cells, cells + 1),
        sparse.csr_array((held, (cell % types, cell)), shape=(types, cells + 1)),
        sparse.csr_array((np.ones(cells), (cell // types, cell)), shape=(count, cells + 1)),
        sparse.csr_array(levels),
    )
    most = np.concatenate([np.zeros(cells), workers, np.ones(count), np.zeros(count)])
    cones = {"l": len(most), "q": [], "e": 0}
    cost = np.append(np.zeros(cells), -1.0)
    x = ecos.solve(cost, sparse.csc_matrix(sparse.vstack(rows)), most, cones, verbose=False)["x"][
        :-1
    ]
    assert found.shares == pytest.approx(x.reshape(count, types), abs=1e-3)
    assert_valid(asked, found)


def test_steps_per_second_are_added_up_and_shared_by_jobs_that_are_alike() -> None:
    """Two jobs of long steps are alike; the one of short steps gets the fast type although it gains
    less there.
    """
    asked = problem([[9.0, 8.0], [4.0, 1.0], [4.0, 1.0]], [1.0, 1.0])
    assert sum_policy(asked).shares == pytest.approx(
        np.array([[0, 1], [0.5, 0], [0.5, 0]]), abs=1e-4
    )
    priced = replace(asked, cluster=replace(asked.cluster, usd_per_hour=np.array([8.0, 1.0])))
    assert sum_policy(priced, per_dollar=True).shares[0] == pytest.approx([0, 1], abs=1e-4)
    assert sorted(sum_policy(asked, centered=False).shares[1:, 0]) == pytest.approx([0, 1])
    assert sum_policy(asked, steps=False).objective == pytest.approx(
        max_throughput_policy(asked).objective
    )
    with pytest.raises(BadProblem, match="needs the price"):
        sum_policy(asked, per_dollar=True)


def test_uniform_speeds_divide_types_although_a_job_cannot_run_on_them() -> None:
    asked = replace(problem([[2.0, 1.0], [1.0, 0.0]], [1.0, 1.0]), centered=True)
    found = UniformSpeeds(max_min_fairness_policy, None)(asked)
    assert found.shares[1, 1] == 0
    # Half of the second job's time is on the type where it cannot run.
    assert found.shares[1, 0] == pytest.approx(0.5, abs=0.01)


def test_help_says_what_each_switch_does() -> None:
    told = spotctl("lab", "gavel", "simulate", "--help", COLUMNS="120").out
    assert [name for name in sorted(SWITCHES) if f" {name}  " not in told] == []


def test_the_published_table_is_read_completely(shared_data: Path) -> None:
    with (shared_data / "gavel" / "published" / "results.csv").open() as file:
        assert sorted((row["stream"], row["policy"]) for row in csv.DictReader(file)) == sorted(
            RUNS
        )
