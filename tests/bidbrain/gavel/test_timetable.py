"""When each job of a plan runs: the pieces of time against the plan's hours, the deadlines and the workers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bidbrain.gavel.policies import Agnostic, Policy
from bidbrain.gavel.policies.budget import MakespanWithinBudget
from bidbrain.gavel.policies.makespan import Makespan
from bidbrain.gavel.policies.min_cost_slo import MinCostSlo
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import scale_of_rows
from bidbrain.gavel.timetable import PlannedPiece, timetable
from tests.bidbrain.gavel.problems import problem, random_problem
from tests.bidbrain.gavel.test_deadline_packing import colliding


def assert_fits(asked: AllocationProblem, table: list[PlannedPiece]) -> None:
    """At no time more workers of a type are held than there are, and no row runs more than all of the time."""
    scale, times = scale_of_rows(asked), np.unique([0.0, *(piece.end for piece in table)])
    for begin, end in pairwise(times.tolist()):
        middle = (begin + end) / 2
        held, busy = np.zeros(len(asked.cluster.types)), np.zeros(len(scale))
        for piece in table:
            if piece.start < middle < piece.end:
                held[piece.type] += scale[piece.row] * piece.share
                busy[piece.row] += piece.share
        assert (held <= asked.cluster.workers * (1 + 1e-5) + 1e-6).all()
        assert busy.max(initial=0.0) <= 1 + 1e-5


def assert_adds_up(found: ClusterAllocation, table: list[PlannedPiece], rel: float = 1e-5) -> None:
    assert found.hours is not None
    hours = np.zeros(found.hours.shape)
    for piece in table:
        hours[piece.row, piece.type] += piece.share * (piece.end - piece.start) / 3600
    assert hours == pytest.approx(found.hours, rel=rel, abs=1e-6 * max(found.hours.max(), 1.0))


def timed(asked: AllocationProblem, policy: Policy) -> tuple[ClusterAllocation, list[PlannedPiece]]:
    found = policy.allocate(asked)
    return found, timetable(asked, found)


def with_deadlines(rng: np.random.Generator) -> AllocationProblem:
    asked = random_problem(rng, holes=0.1)
    best = np.where(asked.jobs.scale[:, None] <= asked.cluster.workers, asked.jobs.throughputs, 0.0).max(axis=1)
    alone = asked.jobs.steps / np.maximum(best, 1e-9)
    slo = np.where(rng.random(len(alone)) < 0.7, alone * rng.uniform(1.2, 5, len(alone)), np.inf)
    return replace(asked, jobs=replace(asked.jobs, slo_seconds=asked.jobs.elapsed_seconds + slo))


@pytest.mark.parametrize("seed", range(40))
def test_pieces_add_up_to_the_hours_and_keep_deadlines_and_workers(seed: int) -> None:
    asked = with_deadlines(np.random.default_rng(seed))
    found, table = timed(asked, MinCostSlo())
    assert_fits(asked, table)
    assert_adds_up(found, table)
    left = asked.jobs.slo_seconds - asked.jobs.elapsed_seconds
    for piece in table:
        if not any(asked.jobs.ids[piece.row] in line for line in found.infeasible):
            assert piece.end <= left[piece.row] * (1 + 1e-5)


def test_of_many_colliding_deadlines_too() -> None:
    asked = colliding(np.random.default_rng(0), 128, 2)
    found, table = timed(asked, MinCostSlo())
    assert found.infeasible
    assert_fits(asked, timetable(asked, replace(found, hours=None)))
    assert_adds_up(found, table, rel=1e-4)


def test_jobs_without_deadlines_run_as_early_as_workers_are_free_by_arrival() -> None:
    asked = problem([[1.0]] * 3, [1], prices=[1], steps=[100, 50, 50], slo_seconds=[100, np.inf, np.inf])
    asked = replace(asked, jobs=replace(asked.jobs, arrival=np.array([0.0, 2.0, 1.0])))
    _, table = timed(asked, MinCostSlo())
    assert table == [
        PlannedPiece(0, 0, 0.0, 100.0, 1.0),
        PlannedPiece(1, 0, 150.0, 200.0, 1.0),
        PlannedPiece(2, 0, 100.0, 150.0, 1.0),
    ]


def test_within_a_budget_all_run_until_the_makespan() -> None:
    asked = replace(problem([[2.0, 1.0], [1.0, 1.0]], [1, 1], prices=[1, 1], steps=[200, 100]), budget_usd=10.0)
    found, table = timed(asked, MakespanWithinBudget())
    assert [piece.end for piece in table] == pytest.approx([found.objective] * len(table))
    assert_fits(asked, table)
    assert_adds_up(found, table)


def test_the_makespan_has_times_and_the_agnostic_plan_as_well() -> None:
    asked = problem([[2.0, 1.0], [1.0, 1.0]], [1, 1], prices=[1, 1], steps=[200, 100], slo_seconds=[400, np.inf])
    assert max(piece.end for piece in timetable(asked, Makespan().allocate(asked))) == pytest.approx(100.0)
    _, table = timed(asked, Agnostic(MinCostSlo()))
    assert_fits(asked, table)
    assert max(piece.end for piece in table if piece.row == 0) <= 400 * (1 + 1e-9)
