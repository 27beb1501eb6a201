"""The mechanism: the next round by priority, and the assignment of workers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.arrays import Floats
from bidbrain.gavel.policies import Agnostic, Policy
from bidbrain.gavel.policies.fairness import makespan_policy
from bidbrain.gavel.policies.linear import makespan_within_budget_policy
from bidbrain.gavel.policies.min_cost_slo import min_cost_slo_policy
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, scale_of_rows
from bidbrain.lab.gavel.rounds import (
    NO_JOB,
    PlannedPiece,
    RoundCandidates,
    RoundChoice,
    Servers,
    timetable,
)
from tests.bidbrain.gavel.policies.test_deadline_packing import colliding
from tests.bidbrain.gavel.problems import problem, random_problem


def candidates(*rows: tuple[int, int, int, int]) -> RoundCandidates:
    """(first, second, type, scale) each."""
    return RoundCandidates(
        *(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    )


def test_the_share_of_figure_5_5_is_realised_round_by_round() -> None:
    """X_example of section 5.3.1 on one worker of each of three types: received times converge to
    it from any start.
    """
    x = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
    row, type_ = (np.asarray(part) for part in np.nonzero(x))
    among = RoundCandidates(
        row, np.full(len(row), NO_JOB), type_, np.ones(len(row), dtype=np.int64)
    )
    received, choice = np.full(len(row), 0.5), RoundChoice(among, np.ones(3))
    for _ in range(1000):
        received[choice.next(x[row, type_] / received, range(3))] += 1
    assert np.abs(received / 1000 - x[row, type_]).max() < 0.02


def test_a_big_job_waits_for_workers_and_small_ones_fill_up() -> None:
    among = candidates((0, NO_JOB, 0, 3), (1, NO_JOB, 0, 4), (2, NO_JOB, 0, 1), (3, NO_JOB, 0, 1))
    assert RoundChoice(among, np.array([4.0])).next(
        np.array([4.0, 3.0, 2.0, 1.0]), range(1)
    ).tolist() == [0, 2]
    assert RoundChoice(among, np.array([4.0])).next(
        np.array([3.0, 4.0, 2.0, 1.0]), range(1)
    ).tolist() == [1]


def test_no_job_runs_twice_neither_on_two_types_nor_alone_and_in_a_pair() -> None:
    among = candidates(
        (0, 1, 0, 1),
        (0, NO_JOB, 1, 1),
        (1, NO_JOB, 1, 1),
        (1, 2, 1, 1),
        (2, NO_JOB, 0, 1),
        (2, 3, 1, 1),
    )
    assert RoundChoice(among, np.array([1.0, 2.0])).next(
        np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), range(2)
    ).tolist() == [
        0,
        5,
    ]


def test_ties_go_to_the_earlier_candidate() -> None:
    among = candidates((5, NO_JOB, 0, 1), (2, NO_JOB, 0, 1), (7, NO_JOB, 0, 1))
    assert RoundChoice(among, np.array([2.0])).next(np.ones(3), range(1)).tolist() == [0, 1]


@st.composite
def choices(draw: st.DrawFn) -> tuple[RoundCandidates, Floats, Floats]:
    types = draw(st.integers(1, 3))
    jobs = st.integers(0, 5)
    rows = draw(
        st.lists(
            st.tuples(
                jobs, st.just(NO_JOB) | jobs, st.integers(0, types - 1), st.integers(1, 4)
            ).filter(lambda row: row[0] != row[1]),
            min_size=1,
            max_size=12,
        )
    )
    priority = draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    workers = draw(st.lists(st.integers(0, 5), min_size=types, max_size=types))
    return candidates(*rows), np.array(priority, dtype=float), np.array(workers, dtype=float)


@given(choices())
def test_skipped_candidates_conflict_with_or_do_not_fit_next_to_chosen_ones(
    asked: tuple[RoundCandidates, Floats, Floats],
) -> None:
    among, priority, workers = asked
    chosen = RoundChoice(among, workers).next(priority, range(len(workers))).tolist()
    order = sorted(range(len(priority)), key=lambda i: (among.type[i], -priority[i], i))
    for i in range(len(priority)):
        before = [j for j in chosen if order.index(j) < order.index(i)]
        held = sum(among.scale[j] for j in before if among.type[j] == among.type[i])
        jobs = {m for j in before for m in (among.first[j], among.second[j])} - {NO_JOB}
        fits = held + among.scale[i] <= workers[among.type[i]]
        assert (i in chosen) == (fits and not jobs & {among.first[i], among.second[i]})


def assert_fits(asked: AllocationProblem, table: list[PlannedPiece]) -> None:
    """At no time more workers of a type are held than there are, and no row runs more than all of
    the time.
    """
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
    found = policy(asked)
    return found, timetable(asked, found)


def with_deadlines(rng: np.random.Generator) -> AllocationProblem:
    asked = random_problem(rng, holes=0.1)
    best = np.where(
        asked.jobs.scale[:, None] <= asked.cluster.workers, asked.jobs.throughputs, 0.0
    ).max(axis=1)
    alone = asked.jobs.steps / np.maximum(best, 1e-9)
    slo = np.where(rng.random(len(alone)) < 0.7, alone * rng.uniform(1.2, 5, len(alone)), np.inf)
    return replace(asked, jobs=replace(asked.jobs, slo_seconds=asked.jobs.elapsed_seconds + slo))


@pytest.mark.parametrize("seed", range(40))
def test_pieces_add_up_to_the_hours_and_keep_deadlines_and_workers(seed: int) -> None:
    asked = with_deadlines(np.random.default_rng(seed))
    found, table = timed(asked, min_cost_slo_policy)
    assert_fits(asked, table)
    assert_adds_up(found, table)
    left = asked.jobs.slo_seconds - asked.jobs.elapsed_seconds
    for piece in table:
        if not any(asked.jobs.ids[piece.row] in line for line in found.infeasible):
            assert piece.end <= left[piece.row] * (1 + 1e-5)


def test_of_many_colliding_deadlines_too() -> None:
    asked = colliding(np.random.default_rng(0), 128, 2)
    found, table = timed(asked, min_cost_slo_policy)
    assert found.infeasible
    assert_fits(asked, timetable(asked, replace(found, hours=None)))
    assert_adds_up(found, table, rel=1e-4)


def test_jobs_without_deadlines_run_as_early_as_workers_are_free_by_arrival() -> None:
    asked = problem(
        [[1.0]] * 3, [1], prices=[1], steps=[100, 50, 50], slo_seconds=[100, np.inf, np.inf]
    )
    asked = replace(asked, jobs=replace(asked.jobs, arrival=np.array([0.0, 2.0, 1.0])))
    _, table = timed(asked, min_cost_slo_policy)
    assert table == [
        PlannedPiece(0, 0, 0.0, 100.0, 1.0),
        PlannedPiece(1, 0, 150.0, 200.0, 1.0),
        PlannedPiece(2, 0, 100.0, 150.0, 1.0),
    ]


def test_within_a_budget_all_run_until_the_makespan() -> None:
    asked = replace(
        problem([[2.0, 1.0], [1.0, 1.0]], [1, 1], prices=[1, 1], steps=[200, 100]), budget_usd=10.0
    )
    found, table = timed(asked, makespan_within_budget_policy)
    assert [piece.end for piece in table] == pytest.approx([found.objective] * len(table))
    assert_fits(asked, table)
    assert_adds_up(found, table)


def test_the_makespan_has_times_and_the_agnostic_plan_as_well() -> None:
    asked = problem(
        [[2.0, 1.0], [1.0, 1.0]], [1, 1], prices=[1, 1], steps=[200, 100], slo_seconds=[400, np.inf]
    )
    assert max(piece.end for piece in timetable(asked, makespan_policy(asked))) == pytest.approx(
        100.0
    )
    _, table = timed(asked, Agnostic(min_cost_slo_policy))
    assert_fits(asked, table)
    assert max(piece.end for piece in table if piece.row == 0) <= 400 * (1 + 1e-9)


@given(st.data())
def test_servers_hold_no_more_than_they_have_and_keep_who_can_stay(data: st.DataObject) -> None:
    workers, per_server = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 8))
    servers = Servers(workers, per_server)
    for _ in range(4):
        scales = data.draw(st.dictionaries(st.integers(0, 9), st.sampled_from([1, 2, 3, 4, 8])))
        jobs, used = dict[int, int](), 0
        for job, scale in scales.items():
            if used + scale <= workers:
                jobs[job], used = scale, used + scale
        spread, _ = servers.place(jobs)
        again = servers.place(jobs)
        # The biggest job has a server for itself if any is large enough, and nobody moves for
        # nothing.
        biggest = max(jobs.values(), default=0)
        if 0 < biggest <= min(per_server, workers):
            assert {job for job, scale in jobs.items() if scale == biggest} - spread
        assert not {job for job, scale in jobs.items() if scale == 1} & spread
        assert again == (spread, set(jobs))
