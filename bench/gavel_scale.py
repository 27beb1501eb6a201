"""Gavel's policies at the sizes where they are hard, on processor time: `python -m bench
gavel_scale`.

The peers of max-min fairness are ECOS, Clarabel and HiGHS, called directly with the published
linear program. All solve the same problem one after the other, some times over, and the least time
of each counts: from the problem's arrays to the level, which for peers includes writing the program
with scipy.sparse. The ratio is to the fastest peer. `python -m bench.gavel_scale` prints only that,
with every ratio, also to what the fastest takes without writing it.

Deadlines collide: each job meets its own alone, but all together need more workers than there are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import highspy
import numpy as np
from scipy import sparse

from bench.gavel import problem, with_entities
from bench.harness import Row, shown, table, times_faster
from bidbrain.arrays import Floats
from bidbrain.gavel import min_cost_slo
from bidbrain.gavel.deadline_packing import lateness
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import AllocationProblem, equal_throughput

JOBS, MANY = 2_048, 10_000
SIZES = (64, 256, 1_024, 2_048)


def colliding(jobs: int, workers: int, seed: int = 0) -> AllocationProblem:
    """Jobs of 17 minutes to 28 hours with deadlines of 1.2 to 10 times that, on some workers of
    each type.
    """
    asked, rng = problem(jobs, workers / jobs, seed), np.random.default_rng([seed, 1])
    alone = asked.jobs.steps / asked.jobs.throughputs.max(axis=1)
    return replace(asked, jobs=replace(asked.jobs, slo_seconds=alone * rng.uniform(1.2, 10, jobs)))


def run() -> str:
    """Measures everything and returns the section."""
    return table(
        "Gavel at scale",
        f"Processor time. Max-min fairness from nothing, for "
        f"{', '.join(f'{jobs:,}' for jobs in SIZES)} jobs, against"
        " the fastest of ECOS, Clarabel and HiGHS called directly with the same linear program; "
        "deadlines that collide, with the number that is kept and a bound of it.",
        [*_fairness_rows(), *_hierarchy_rows(), *_deadline_rows()],
    )


def main(sizes: list[int]) -> None:
    """Prints our time, that of each peer, and the ratio to the fastest, for each size and kind of
    input.
    """
    for jobs in sizes or SIZES:
        worst = 0.0
        for kind in KINDS:
            times, off = compared(KINDS[kind](jobs))
            ours, writing = times.pop(OURS), times.pop(WRITING)
            peer = min(times.values())
            worst = max(worst, ours / peer)
            peers = ", ".join(f"{name} {shown(taken)}" for name, taken in times.items())
            ratios = f"ratio {ours / peer:.2f}, without writing {ours / (peer - writing):.2f}"
            print(
                f"{jobs:5} {kind:32} {shown(ours):8} {peers}; {ratios}; level {off:+.0e}",
                flush=True,
            )
        print(f"{jobs:5} worst ratio {worst:.2f}")


def _fairness_rows() -> list[Row]:
    rows = []
    for kind, of_size in KINDS.items():
        ours, peers, ratios = [], [], []
        for jobs in SIZES:
            times, _ = compared(of_size(jobs))
            ours.append(times.pop(OURS))
            del times[WRITING]
            peers.append(min(times, key=lambda name: times[name]))
            ratios.append(times[peers[-1]] / ours[-1])
        best = ", ".join(
            f"{name} {shown(taken * ratio)}"
            for name, taken, ratio in zip(peers, ours, ratios, strict=True)
        )
        rows.append(
            Row(
                f"max-min-fairness, {kind}",
                ", ".join(map(shown, ours)),
                best,
                f"at least {min(ratios):.3g}x",
            )
        )
    return rows


def few_workers(jobs: int) -> AllocationProblem:
    """A worker of each type for twenty jobs, which all fit."""
    asked = problem(jobs, 0.05)
    return replace(asked, jobs=replace(asked.jobs, scale=np.minimum(asked.jobs.scale, 2)))


def spread_weights(jobs: int) -> AllocationProblem:
    """Weights over twelve decades."""
    asked = problem(jobs, 0.25, seed=1)
    return replace(
        asked,
        jobs=replace(
            asked.jobs, weight=10 ** np.random.default_rng(3).uniform(-6, 6, len(asked.jobs.ids))
        ),
    )


def with_speeds(asked: AllocationProblem, speeds: Floats) -> AllocationProblem:
    """Jobs with other throughputs."""
    return replace(asked, jobs=replace(asked.jobs, throughputs=speeds))


def a_third_identical(jobs: int) -> AllocationProblem:
    """A third of the jobs have the same throughputs."""
    asked = problem(jobs, 0.25, seed=2, alike=True)
    speeds = asked.jobs.throughputs.copy()
    speeds[: jobs // 3] = speeds[0]
    return with_speeds(asked, speeds)


def of_few_kinds(jobs: int) -> AllocationProblem:
    """Jobs of 26 kinds, as in the published workload."""
    asked = problem(jobs, 0.25, seed=4, alike=True)
    return with_speeds(
        asked, asked.jobs.throughputs[np.random.default_rng(5).integers(0, 26, jobs)]
    )


def spread_speeds(jobs: int) -> AllocationProblem:
    """Throughputs over six decades, independent of the type."""
    asked = problem(jobs, 0.25, seed=6)
    return with_speeds(
        asked, 10 ** np.random.default_rng(7).uniform(-3, 3, asked.jobs.throughputs.shape)
    )


def not_everywhere(jobs: int) -> AllocationProblem:
    """A third of all jobs cannot run on the fastest type, another third not on the slowest."""
    asked = problem(jobs, 0.25, seed=8)
    speeds, which = asked.jobs.throughputs.copy(), np.arange(jobs) % 3
    speeds[which == 0, 2] = speeds[which == 1, 0] = 0.0
    return with_speeds(asked, speeds)


def of_types(jobs: int, types: int) -> AllocationProblem:
    """Any number of types of the same size."""
    asked, rng = problem(jobs, 0.25, seed=9), np.random.default_rng(10)
    workers = np.full(types, max(4.0, np.round(0.75 * jobs / types)))
    cluster = replace(
        asked.cluster,
        types=tuple(f"t{j}" for j in range(types)),
        workers=workers,
        usd_per_hour=None,
    )
    return with_speeds(replace(asked, cluster=cluster), rng.uniform(1, 10, (jobs, types)))


KINDS: Mapping[str, Callable[[int], AllocationProblem]] = {
    "few workers": few_workers,
    "a quarter of a worker per job": lambda jobs: problem(jobs, 0.25),
    "more workers than jobs": lambda jobs: problem(jobs, 0.4),
    "equal weights and scales": lambda jobs: problem(jobs, 0.25, alike=True),
    "weights over twelve decades": spread_weights,
    "speeds over six decades": spread_speeds,
    "a third of the jobs identical": a_third_identical,
    "26 kinds of jobs": of_few_kinds,
    "jobs that do not run everywhere": not_everywhere,
    "two types": partial(of_types, types=2),
    "eight types": partial(of_types, types=8),
}
OURS, WRITING = "here", "writing the program"


def compared(asked: AllocationProblem) -> tuple[dict[str, float], float]:
    """The least processor time of the policy and of each peer, by turns, and how far our level is
    from the best.
    """
    policy = policy_named("max-min-fairness")
    ways: dict[str, Callable[[], float]] = {
        OURS: lambda: policy(asked).objective,
        WRITING: lambda: 0 * DirectProgram.of(asked, cone=True).unit,
    }
    ways |= {name: partial(solve, asked) for name, solve in SOLVERS.items()}
    times, levels = dict.fromkeys(ways, np.inf), dict[str, float]()
    for _ in range(9 if len(asked.jobs.ids) <= 256 else 3):
        for name, way in ways.items():
            started = time.process_time()
            levels[name] = way()
            times[name] = min(times[name], time.process_time() - started)
    return times, levels.pop(OURS) / max(levels.values()) - 1


@dataclass(frozen=True, slots=True)
class DirectProgram:
    """The published program as a solver takes it: maximize the last column under `matrix x <=
    most`, x at least 0.

    The level is in units of `unit`, so that the largest entry of its column is 1. Of a cone program
    bounds are rows.
    """

    matrix: sparse.csc_matrix
    most: Floats
    cost: Floats
    unit: float

    @classmethod
    def of(cls, asked: AllocationProblem, *, cone: bool) -> DirectProgram:
        jobs, workers = asked.jobs, asked.cluster.workers
        usable = np.where(jobs.scale[:, None] <= workers, jobs.throughputs, 0.0)
        best = usable.max(axis=1)
        need = jobs.weight * equal_throughput(asked) / jobs.scale / best
        unit, count, types = float(need.max()), len(best), len(workers)
        job, kind = np.nonzero(usable)
        cell, size = np.arange(len(job)), len(job) + 1
        progress = sparse.csr_array(
            (-usable[job, kind] / best[job], (job, cell)), shape=(count, len(job))
        )
        level = sparse.hstack([progress, sparse.csr_array((need / unit)[:, None])])
        alone = sparse.csr_array((np.ones(len(job)), (job, cell)), shape=(count, size))
        limit = sparse.csr_array(
            (jobs.scale[job].astype(np.float64), (kind, cell)), shape=(types, size)
        )
        bounds = size if cone else 0
        rows = [level, alone, limit, sparse.csr_array(-sparse.eye_array(bounds, size))]
        most = [np.zeros(count), np.ones(count), workers, np.zeros(bounds)]
        cost = np.zeros(size)
        cost[-1] = -1.0
        return cls(sparse.csc_matrix(sparse.vstack(rows)), np.concatenate(most), cost, unit)


def _by_ecos(asked: AllocationProblem) -> float:
    ecos: Any = import_module("ecos")
    program = DirectProgram.of(asked, cone=True)
    cones = {"l": len(program.most), "q": [], "e": 0}
    return (
        float(ecos.solve(program.cost, program.matrix, program.most, cones, verbose=False)["x"][-1])
        / program.unit
    )


def _by_clarabel(asked: AllocationProblem) -> float:
    clarabel: Any = import_module("clarabel")
    program, settings = DirectProgram.of(asked, cone=True), clarabel.DefaultSettings()
    settings.verbose = False
    nothing = sparse.csc_matrix((len(program.cost), len(program.cost)))
    cones = [clarabel.NonnegativeConeT(len(program.most))]
    solver = clarabel.DefaultSolver(
        nothing, program.cost, program.matrix, program.most, cones, settings
    )
    return float(solver.solve().x[-1]) / program.unit


def _by_highs(asked: AllocationProblem, **options: str) -> float:
    program, model = DirectProgram.of(asked, cone=False), highspy.HighsLp()
    solver, matrix = highspy.Highs(), program.matrix  # type: ignore[no-untyped-call]
    solver.silent()
    for name, value in options.items():
        solver.setOptionValue(name, value)
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_, model.col_lower_ = program.cost, 0.0 * program.cost
    model.col_upper_ = np.full(len(program.cost), highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = (
        np.full(len(program.most), -highspy.kHighsInf),
        program.most,
    )
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver.passModel(model)
    solver.run()
    return -float(solver.getObjectiveValue()) / program.unit


SOLVERS: Mapping[str, Callable[[AllocationProblem], float]] = {
    "ECOS": _by_ecos,
    "Clarabel": _by_clarabel,
    "HiGHS simplex": _by_highs,
    "the same without presolve": partial(_by_highs, presolve="off"),
    "HiGHS IPM": partial(_by_highs, solver="ipm", run_crossover="off"),
}


def _hierarchy_rows() -> list[Row]:
    policy = policy_named("hierarchical")
    return [
        _limited(
            f"hierarchical, {JOBS:,} weighted jobs of 5 entities, {workers:g} workers of each type "
            "per job",
            _processor(partial(policy, with_entities(problem(JOBS, workers)))),
            2.0,
        )
        for workers in (0.02, 0.25, 0.34, 0.4)
    ]


def _deadline_rows() -> list[Row]:
    rows = []
    for jobs, workers, limit in (
        (256, 5, 0.5),
        (JOBS, 5, 0.5),
        (JOBS, 40, 0.5),
        (MANY, 5, 5.0),
        (MANY, 200, 5.0),
    ):
        asked = colliding(jobs, workers)
        what = f"min-cost-slo, {jobs:,} colliding deadlines on {workers} workers of each type"
        policy = policy_named("min-cost-slo")
        rows.append(_limited(what, _processor(partial(policy, asked), runs=2), limit))
        kept, most = jobs - len(policy(asked).infeasible), _most_kept(asked)
        rows.append(
            Row(
                f"the same: deadlines kept of {jobs:,}",
                f"{kept:,}",
                f"at most {most:,}",
                f"{kept / most:.3g}x",
            )
        )
    return rows


def _most_kept(asked: AllocationProblem) -> int:
    late, _, _ = lateness(min_cost_slo.batch_of(asked))
    return int(np.floor(len(late) - late.sum() + 1e-6))


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


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
