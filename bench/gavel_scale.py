"""Gavel's policies at the sizes where they are hard, on processor time: `python -m bench gavel_scale`.

The peer of max-min fairness is the published linear program, built with cvxpy and solved by ECOS and by Clarabel in the
same run. Deadlines collide: each job meets its own alone, but all together need more workers than there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.gavel import problem, with_entities
from bench.harness import Row, shown, table, times_faster
from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies import min_cost_slo, policy_named
from bidbrain.gavel.policies.lateness import lateness
from bidbrain.gavel.problem import AllocationProblem
from bidbrain.gavel.shares import equal_throughput

JOBS, MANY, COMPARED = 2_048, 10_000, 96


def colliding(jobs: int, workers: int, seed: int = 0) -> AllocationProblem:
    """Jobs of 17 minutes to 28 hours with deadlines of 1.2 to 10 times that, on some workers of each type."""
    asked, rng = problem(jobs, workers / jobs, seed), np.random.default_rng([seed, 1])
    alone = asked.jobs.steps / asked.jobs.throughputs.max(axis=1)
    return replace(asked, jobs=replace(asked.jobs, slo_seconds=alone * rng.uniform(1.2, 10, jobs)))


def run() -> str:
    """Measures everything and returns the section."""
    return table(
        "Gavel at scale",
        f"Processor time. Max-min fairness of {JOBS:,} distinct jobs against the published linear program in cvxpy,"
        " both from nothing; deadlines that collide, with the number that is kept and a bound of it.",
        [*_fairness_rows(), *_hierarchy_rows(), *_deadline_rows(), *_compared_rows()],
    )


def _fairness_rows() -> list[Row]:
    rows = []
    for workers in (0.25, 0.4, 0.02):
        asked = problem(JOBS, workers)
        ours = _processor(partial(policy_named("max-min-fairness").allocate, asked))
        for solver in ("ECOS", "CLARABEL"):
            peer = _processor(partial(published, asked, solver))
            what = f"max-min-fairness, {workers:g} workers of each type per job"
            rows.append(Row(what, shown(ours), f"cvxpy and {solver} {shown(peer)}", times_faster(ours, peer)))
    return rows


def published(asked: AllocationProblem, solver: str) -> FloatArray:
    """The published program: the least normalized throughput is maximized over valid X."""
    # Its annotations are incomplete.
    cp: Any = import_module("cvxpy")
    jobs, workers = asked.jobs, asked.cluster.workers
    scale = np.repeat(jobs.scale[:, None].astype(np.float64), len(workers), axis=1)
    worth = jobs.throughputs * scale / (jobs.weight * equal_throughput(asked))[:, None]
    x = cp.Variable(worth.shape)
    limits = [x >= 0, cp.sum(cp.multiply(scale, x), axis=0) <= workers, cp.sum(x, axis=1) <= 1]
    cp.Problem(cp.Maximize(cp.min(cp.sum(cp.multiply(worth, x), axis=1))), limits).solve(solver=solver)
    return np.asarray(x.value)


def _hierarchy_rows() -> list[Row]:
    policy = policy_named("hierarchical")
    return [
        _limited(
            f"hierarchical, {JOBS:,} jobs of 5 entities, {workers:g} workers of each type per job",
            _processor(partial(policy.allocate, with_entities(problem(JOBS, workers)))),
            2.0,
        )
        for workers in (0.02, 0.25, 0.35, 0.4)
    ]


def _deadline_rows() -> list[Row]:
    rows = []
    for jobs, workers, limit in ((256, 5, 0.5), (JOBS, 5, 0.5), (JOBS, 40, 0.5), (MANY, 5, 5.0), (MANY, 200, 5.0)):
        asked = colliding(jobs, workers)
        what = f"min-cost-slo, {jobs:,} colliding deadlines on {workers} workers of each type"
        policy = policy_named("min-cost-slo")
        rows.append(_limited(what, _processor(partial(policy.allocate, asked), runs=2), limit))
        kept, most = jobs - len(policy.allocate(asked).infeasible), _most_kept(asked)
        rows.append(
            Row(f"the same: deadlines kept of {jobs:,}", f"{kept:,}", f"at most {most:,}", f"{kept / most:.3g}x")
        )
    return rows


def _most_kept(asked: AllocationProblem) -> int:
    late = lateness(min_cost_slo.batch_of(asked)).late
    return int(np.floor(len(late) - late.sum() + 1e-6))


def _compared_rows() -> list[Row]:
    """The exact procedure, which gives deadlines up one by one, takes too long for many more jobs than these."""
    rows = []
    for seed in range(4):
        asked = colliding(COMPARED, 1, seed)
        every, started = np.arange(COMPARED), time.process_time()
        exact = len(min_cost_slo.kept_one_by_one(min_cost_slo.batch_of(asked), every)[0])
        taken = time.process_time() - started
        ours = COMPARED - len(policy_named("min-cost-slo").allocate(asked).infeasible)
        what = f"{COMPARED} colliding deadlines on a worker of each type, seed {seed}: kept"
        rows.append(Row(what, f"{ours}", f"one by one {exact} in {shown(taken)}", f"{ours / exact:.3g}x"))
    return rows


def _limited(what: str, taken: float, limit: float) -> Row:
    return Row(what, shown(taken), f"at most {shown(limit)}", times_faster(taken, limit))


def _processor(action: Callable[[], object], runs: int = 4) -> float:
    """The least processor time of some runs: other programs on the computer only add to it."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)
