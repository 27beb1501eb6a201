"""Policies at the sizes of a large cluster, with their time limits and the published code's
times."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bench.harness import Row, seconds, shown, table
from bidbrain.gavel.policies import Policy, policy_named
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterJobs, Entity, Pairs

JOBS, PAIRED = 2_048, 512
_USD_PER_HOUR = (0.135, 0.43, 0.74)


def problem(jobs: int, workers: float, seed: int = 0, *, alike: bool = False) -> AllocationProblem:
    """Distinct jobs, faster from type to type, with `workers` workers of each of three types per
    job.

    Jobs have random weights and scales, or all 1 if they are `alike` in that.
    """
    rng = np.random.default_rng(seed)
    fastest = rng.uniform(1, 10, (jobs, 1))
    throughputs = fastest * np.sort(rng.uniform(0.2, 1, (jobs, 3)), axis=1)
    best = throughputs.max(axis=1)
    alone = 10 ** rng.uniform(3, 5, jobs)
    hurried = rng.random(jobs) < 0.5
    return AllocationProblem(
        Cluster(
            ("k80", "p100", "v100"), np.full(3, np.round(jobs * workers)), np.array(_USD_PER_HOUR)
        ),
        ClusterJobs(
            ids=tuple(f"j{m}" for m in range(jobs)),
            throughputs=throughputs,
            scale=np.ones(jobs, dtype=np.int64) if alike else rng.choice([1, 1, 1, 2, 4], jobs),
            weight=np.ones(jobs) if alike else rng.uniform(0.2, 5, jobs),
            steps=alone * best,
            elapsed_seconds=np.zeros(jobs),
            slo_seconds=np.where(hurried, alone * rng.uniform(1.2, 10, jobs), np.inf),
            arrival=np.arange(jobs, dtype=np.float64),
            entity=(None,) * jobs,
        ),
    )


def with_all_pairs(asked: AllocationProblem, seed: int = 0) -> AllocationProblem:
    """Every two jobs may share a worker; some pairs gain by that and most do not."""
    rng = np.random.default_rng(seed)
    members = np.stack(np.triu_indices(len(asked.jobs.ids), 1), axis=1)
    slowed = rng.uniform(0.2, 0.9, (len(members), 3, 2))
    return replace(
        asked, pairs=Pairs(members, asked.jobs.throughputs[members].transpose(0, 2, 1) * slowed)
    )


def with_entities(asked: AllocationProblem) -> AllocationProblem:
    """Five entities of weights 1 to 3, with fairness within."""
    names = tuple(f"e{m % 5}" for m in range(len(asked.jobs.ids)))
    entities = tuple(Entity(f"e{i}", float(1 + i % 3)) for i in range(5))
    return replace(asked, entities=entities, jobs=replace(asked.jobs, entity=names))


def run() -> str:
    """Measures everything and returns the section."""
    return table(
        "Gavel's policies",
        f"{JOBS:,} distinct jobs on 3 types (identical jobs would make programs smaller), a "
        "quarter of a worker of each"
        " type per job, or more workers than jobs. The published code's times are from another "
        "machine.",
        [*_fairness_rows(), *_cost_rows(), _pair_row(), *_hierarchy_rows(), *_small_rows()],
    )


def _row(what: str, taken: float, limit: float, published: str = "") -> Row:
    limit_text = f"at most {shown(limit)}" + (
        f" (published code: {published})" if published else ""
    )
    return Row(what, shown(taken), limit_text, f"{limit / taken:.3g}x")


def _fairness_rows() -> list[Row]:
    policy, rows = policy_named("max-min-fairness"), []
    for workers, words in ((0.25, ""), (0.4, ", more workers than jobs")):
        asked = problem(JOBS, workers, alike=True)
        cold = seconds(partial(policy, asked), runs=3)
        rows.append(_row(f"max-min-fairness{words}, cold start", cold, 0.1, "40-68 ms"))
        rows.append(
            _row(f"max-min-fairness{words}, after one change", _after_changes(policy, asked), 0.03)
        )
    return rows


def _after_changes(policy: Policy, asked: AllocationProblem) -> float:
    rng = np.random.default_rng(1)
    throughputs = asked.jobs.throughputs.copy()

    def change() -> None:
        throughputs[rng.integers(len(throughputs))] = np.sort(
            rng.uniform(1, 10, throughputs.shape[1])
        )
        policy(replace(asked, jobs=replace(asked.jobs, throughputs=throughputs.copy())))

    return seconds(change, runs=11)


def _cost_rows() -> list[Row]:
    policy = policy_named("min-cost-slo")
    return [
        _row(
            f"min-cost-slo, deadlines on half of the jobs{words}",
            seconds(partial(policy, problem(JOBS, workers, alike=True)), runs=3),
            0.2,
            "883 ms",
        )
        for workers, words in ((0.25, ""), (0.4, ", more workers than jobs"))
    ]


def _pair_row() -> Row:
    asked = with_all_pairs(problem(PAIRED, 0.25, alike=True))
    assert asked.pairs is not None
    taken = seconds(partial(policy_named("max-min-fairness"), asked), runs=1)
    return _row(
        f"max-min-fairness, {PAIRED} jobs and {len(asked.pairs.members):,} pairs", taken, 3, "42 s"
    )


def _hierarchy_rows() -> list[Row]:
    policy = policy_named("hierarchical")
    return [
        _row(
            f"hierarchical, {jobs:,} jobs of 5 entities{words}",
            seconds(partial(policy, with_entities(problem(jobs, workers, alike=True))), runs=1),
            5,
        )
        for jobs, workers, words in (
            (PAIRED, 0.25, ""),
            (JOBS, 0.25, ""),
            (JOBS, 0.02, ", few workers"),
        )
    ]


def _small_rows() -> list[Row]:
    """Problems as a simulation solves ten thousand times: jobs of some kinds come and go."""
    policy, rng = policy_named("max-min-fairness"), np.random.default_rng(2)
    kinds = problem(26, 36 / 26, alike=True).jobs.throughputs
    present = list(rng.integers(0, 26, 85))

    def change() -> None:
        present[rng.integers(len(present))] = rng.integers(26)
        asked = problem(len(present), 36 / len(present), alike=True)
        policy(replace(asked, jobs=replace(asked.jobs, throughputs=kinds[present])))

    taken = seconds(change, runs=201)
    building = seconds(lambda: problem(len(present), 36 / len(present), alike=True), runs=201)
    return [
        Row("max-min-fairness, 85 jobs of 26 kinds, after one change", shown(taken - building), "-")
    ]
