"""Gavel's policies at the sizes where they are hard, on processor time: `python -m bench gavel_scale`.

The peers of max-min fairness are ECOS, Clarabel and HiGHS, called directly with the published linear program in the
same run: jobs with random weights and scales, with weights over twelve decades, and with a third of the jobs identical.
Deadlines collide: each job meets its own alone, but all together need more workers than there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from bench.gavel import problem, with_entities
from bench.harness import Row, shown, table, times_faster
from bidbrain.arrays import Floats
from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.decision.whole_machines import MachineClaim, fairest
from bidbrain.gavel.policies import min_cost_slo, policy_named
from bidbrain.gavel.policies.deadline_packing import lateness
from bidbrain.gavel.problem import AllocationProblem, equal_throughput

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
        f"Processor time. Max-min fairness of {JOBS:,} jobs from nothing, against solvers called directly with the same"
        " linear program; deadlines that collide, with the number that is kept and a bound of it.",
        [*_fairness_rows(), *_hierarchy_rows(), *_deadline_rows(), *_compared_rows(), *_division_rows()],
    )


def _fairness_rows() -> list[Row]:
    rows = []
    for words, asked in fairness_problems():
        ours = _processor(partial(policy_named("max-min-fairness"), asked))
        program = DirectProgram.of(asked)
        for name, solve in SOLVERS.items():
            peer = _processor(partial(solve, program))
            level = solve(program)
            off = policy_named("max-min-fairness")(asked).objective / (level / program.unit) - 1
            what = f"max-min-fairness, {words}"
            rows.append(Row(what, shown(ours), f"{name} {shown(peer)}, level {off:+.0e}", times_faster(ours, peer)))
    return rows


def fairness_problems() -> list[tuple[str, AllocationProblem]]:
    """Problems of kinds that are hard in different ways."""
    rng = np.random.default_rng(3)
    problems = [(f"{workers:g} workers of each type per job", problem(JOBS, workers)) for workers in (0.02, 0.25, 0.4)]
    base = problem(JOBS, 0.25, seed=1)
    spread = replace(base, jobs=replace(base.jobs, weight=10 ** rng.uniform(-6, 6, JOBS)))
    throughputs = base.jobs.throughputs.copy()
    throughputs[: JOBS // 3] = throughputs[0]
    same = problem(JOBS, 0.25, seed=2, alike=True)
    degenerate = replace(same, jobs=replace(same.jobs, throughputs=throughputs))
    return [*problems, ("weights over twelve decades", spread), ("a third of the jobs identical", degenerate)]


@dataclass(frozen=True, slots=True)
class DirectProgram:
    """The published program as a solver takes it: maximize the last column under `matrix x <= most`, x at least 0.

    The level is in units of `unit`, so that the largest entry of its column is 1.
    """

    matrix: sparse.csc_matrix
    most: Floats
    unit: float

    @classmethod
    def of(cls, asked: AllocationProblem) -> DirectProgram:
        jobs, workers = asked.jobs, asked.cluster.workers
        usable = np.where(jobs.scale[:, None] <= workers, jobs.throughputs, 0.0)
        best = usable.max(axis=1)
        need = jobs.weight * equal_throughput(asked) / jobs.scale / best
        unit = float(need.max())
        count, types = usable.shape
        cell = np.arange(count * types)
        held = np.repeat(jobs.scale, types).astype(np.float64)
        progress = sparse.csr_array((-(usable / best[:, None]).ravel(), (cell // types, cell)))
        level = sparse.hstack([progress, sparse.csr_array((need / unit)[:, None])])
        time = sparse.csr_array((np.ones(len(cell)), (cell // types, cell)), shape=(count, len(cell) + 1))
        limit = sparse.csr_array((held, (cell % types, cell)), shape=(types, len(cell) + 1))
        matrix = sparse.csc_matrix(sparse.vstack([level, time, limit]))
        return cls(matrix, np.concatenate([np.zeros(count), np.ones(count), workers]), unit)

    def cone(self) -> tuple[sparse.csc_matrix, Floats, Floats]:
        """With bounds as rows, and the costs of columns."""
        columns = self.matrix.shape[1]
        rows = sparse.csc_matrix(sparse.vstack([self.matrix, -sparse.eye_array(columns)]))
        cost = np.zeros(columns)
        cost[-1] = -1.0
        return rows, np.append(self.most, np.zeros(columns)), cost


def _by_ecos(program: DirectProgram) -> float:
    ecos: Any = import_module("ecos")
    rows, most, cost = program.cone()
    return float(ecos.solve(cost, rows, most, {"l": len(most), "q": [], "e": 0}, verbose=False)["x"][-1])


def _by_clarabel(program: DirectProgram) -> float:
    clarabel: Any = import_module("clarabel")
    rows, most, cost = program.cone()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    nothing = sparse.csc_matrix((len(cost), len(cost)))
    return float(
        clarabel.DefaultSolver(nothing, cost, rows, most, [clarabel.NonnegativeConeT(len(most))], settings)
        .solve()
        .x[-1]
    )


def _by_highs(program: DirectProgram) -> float:
    cost = np.zeros(program.matrix.shape[1])
    cost[-1] = -1.0
    solved: Any = linprog(cost, A_ub=program.matrix, b_ub=program.most, method="highs-ipm")  # type: ignore[call-overload]
    return float(solved.x[-1])


SOLVERS: dict[str, Callable[[DirectProgram], float]] = {
    "ECOS": _by_ecos,
    "Clarabel": _by_clarabel,
    "HiGHS": _by_highs,
}


def _hierarchy_rows() -> list[Row]:
    policy = policy_named("hierarchical")
    return [
        _limited(
            f"hierarchical, {JOBS:,} weighted jobs of 5 entities, {workers:g} workers of each type per job",
            _processor(partial(policy, with_entities(problem(JOBS, workers)))),
            2.0,
        )
        for workers in (0.02, 0.25, 0.34, 0.4)
    ]


def _deadline_rows() -> list[Row]:
    rows = []
    for jobs, workers, limit in ((256, 5, 0.5), (JOBS, 5, 0.5), (JOBS, 40, 0.5), (MANY, 5, 5.0), (MANY, 200, 5.0)):
        asked = colliding(jobs, workers)
        what = f"min-cost-slo, {jobs:,} colliding deadlines on {workers} workers of each type"
        policy = policy_named("min-cost-slo")
        rows.append(_limited(what, _processor(partial(policy, asked), runs=2), limit))
        kept, most = jobs - len(policy(asked).infeasible), _most_kept(asked)
        rows.append(
            Row(f"the same: deadlines kept of {jobs:,}", f"{kept:,}", f"at most {most:,}", f"{kept / most:.3g}x")
        )
    return rows


def _most_kept(asked: AllocationProblem) -> int:
    late, _ = lateness(min_cost_slo.batch_of(asked))
    return int(np.floor(len(late) - late.sum() + 1e-6))


def _compared_rows() -> list[Row]:
    """The exact procedure, which gives deadlines up one by one, takes too long for many more jobs than these."""
    rows = []
    for seed in range(4):
        asked = colliding(COMPARED, 1, seed)
        every, started = np.arange(COMPARED), time.process_time()
        exact = len(min_cost_slo.kept_one_by_one(min_cost_slo.batch_of(asked), every)[0])
        taken = time.process_time() - started
        ours = COMPARED - len(policy_named("min-cost-slo")(asked).infeasible)
        what = f"{COMPARED} colliding deadlines on a worker of each type, seed {seed}: kept"
        rows.append(Row(what, f"{ours}", f"one by one {exact} in {shown(taken)}", f"{ours / exact:.3g}x"))
    return rows


def quota_division(seed: int) -> tuple[tuple[MachineClaim, ...], tuple[SharedQuota, ...]]:
    """Six jobs on 16 kinds in two regions, whose vCPUs count against one of three quotas."""
    rng, kinds = np.random.default_rng(seed), np.arange(16)
    vcpus, family = rng.choice([4.0, 8.0, 16.0, 32.0, 64.0], len(kinds)), rng.integers(0, 3, len(kinds))
    regions = tuple(tuple(kinds[kinds % 2 == region].tolist()) for region in range(2))
    claims = []
    for _ in range(6):
        value = vcpus * rng.uniform(0.5, 1.5, len(kinds))
        least = int(rng.integers(1, 3))
        claims.append(MachineClaim(tuple((value / value.max()).tolist()), least, int(rng.integers(3, 14)), regions))
    amounts = rng.choice([64.0, 96.0, 128.0, 256.0], 3).tolist()
    quotas = (SharedQuota(tuple((vcpus * (family == q)).tolist()), most) for q, most in enumerate(amounts))
    return tuple(claims), tuple(quotas)


def _division_rows() -> list[Row]:
    return [
        _limited(
            f"6 jobs on 16 kinds in whole machines under 3 quotas, seed {seed}",
            _processor(partial(fairest, *quota_division(seed)), runs=1),
            5.0,
        )
        for seed in range(4)
    ]


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
