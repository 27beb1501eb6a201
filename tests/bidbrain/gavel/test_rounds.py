"""The mechanism: the next round by priority, and the assignment of workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.gavel.problem import FloatArray
from bidbrain.gavel.rounds import NO_JOB, DoesNotFit, RoundCandidates, RoundTask, choose, place, priorities


def candidates(*rows: tuple[int, int, int, int]) -> RoundCandidates:
    """(first, second, type, scale) each."""
    return RoundCandidates(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def test_the_share_of_figure_5_5_is_realised_round_by_round() -> None:
    """X_example of section 5.3.1 on one worker of each of three types: received times converge to it from any start."""
    x = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
    row, type_ = (np.asarray(part) for part in np.nonzero(x))
    among = RoundCandidates(row, np.full(len(row), NO_JOB), type_, np.ones(len(row), dtype=np.int64))
    received = np.full(len(row), 0.5)
    for _ in range(1000):
        of_type = np.bincount(type_, received, 3).astype(np.float64)
        chosen = choose(among, priorities(x[row, type_], received, type_, of_type), np.ones(3))
        received[chosen] += 1
    assert np.abs(received / 1000 - x[row, type_]).max() < 0.02


def test_a_big_job_waits_for_workers_and_small_ones_fill_up() -> None:
    among = candidates((0, NO_JOB, 0, 3), (1, NO_JOB, 0, 4), (2, NO_JOB, 0, 1), (3, NO_JOB, 0, 1))
    assert choose(among, np.array([4.0, 3.0, 2.0, 1.0]), np.array([4.0])).tolist() == [0, 2]
    assert choose(among, np.array([3.0, 4.0, 2.0, 1.0]), np.array([4.0])).tolist() == [1]


def test_no_job_runs_twice_neither_on_two_types_nor_alone_and_in_a_pair() -> None:
    among = candidates(
        (0, 1, 0, 1), (0, NO_JOB, 1, 1), (1, NO_JOB, 1, 1), (1, 2, 1, 1), (2, NO_JOB, 0, 1), (2, 3, 1, 1)
    )
    assert choose(among, np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), np.array([1.0, 2.0])).tolist() == [0, 5]


def test_ties_go_to_the_earlier_candidate() -> None:
    among = candidates((5, NO_JOB, 0, 1), (2, NO_JOB, 0, 1), (7, NO_JOB, 0, 1))
    assert choose(among, np.ones(3), np.array([2.0])).tolist() == [0, 1]


@st.composite
def choices(draw: st.DrawFn) -> tuple[RoundCandidates, FloatArray, FloatArray]:
    types = draw(st.integers(1, 3))
    jobs = st.integers(0, 5)
    rows = draw(
        st.lists(
            st.tuples(jobs, st.just(NO_JOB) | jobs, st.integers(0, types - 1), st.integers(1, 4)).filter(
                lambda row: row[0] != row[1]
            ),
            min_size=1,
            max_size=12,
        )
    )
    priority = draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    workers = draw(st.lists(st.integers(0, 5), min_size=types, max_size=types))
    return candidates(*rows), np.array(priority, dtype=float), np.array(workers, dtype=float)


@given(choices())
def test_skipped_candidates_conflict_with_or_do_not_fit_next_to_chosen_ones(
    asked: tuple[RoundCandidates, FloatArray, FloatArray],
) -> None:
    among, priority, workers = asked
    chosen = choose(among, priority, workers).tolist()
    order = sorted(range(len(priority)), key=lambda i: (-priority[i], i))
    for i in range(len(priority)):
        before = [j for j in chosen if order.index(j) < order.index(i)]
        held = sum(among.scale[j] for j in before if among.type[j] == among.type[i])
        jobs = {m for j in before for m in (among.first[j], among.second[j])} - {NO_JOB}
        fits = held + among.scale[i] <= workers[among.type[i]]
        assert (i in chosen) == (fits and not jobs & {among.first[i], among.second[i]})


SERVERS = {"v": [["v0", "v1", "v2", "v3"], ["v4", "v5", "v6", "v7"]], "k": [["k0"], ["k1"]]}


def test_renewed_tasks_keep_their_workers_and_large_tasks_come_first() -> None:
    held = {"old": ("v1", "v5"), "gone": ("v0",), "other type": ("k0",)}
    tasks = [
        RoundTask("small", "v", 1),
        RoundTask("old", "v", 2),
        RoundTask("other type", "v", 1),
        RoundTask("big", "v", 3),
    ]
    placed = place(tasks, SERVERS, held)
    assert placed.renewed == {"old"}
    assert placed.workers["old"] == ("v1", "v5")
    assert placed.workers["big"] == ("v0", "v2", "v3")
    assert {placed.workers["small"], placed.workers["other type"]} < {("v4",), ("v6",), ("v7",)}


def test_a_task_uses_the_fullest_server_with_room_or_else_few_servers() -> None:
    held = {"a": ("v0",)}
    assert place([RoundTask("a", "v", 1), RoundTask("b", "v", 3)], SERVERS, held).workers["b"] == ("v1", "v2", "v3")
    across = place([RoundTask("a", "v", 1), RoundTask("b", "v", 6)], SERVERS, held).workers["b"]
    assert set(across) == {"v4", "v5", "v6", "v7", "v1", "v2"}


def test_a_task_that_needs_more_workers_than_before_moves() -> None:
    placed = place([RoundTask("a", "k", 2)], SERVERS, {"a": ("k0",)})
    assert (placed.workers["a"], placed.renewed) == (("k0", "k1"), frozenset())


def test_too_many_tasks_are_refused() -> None:
    with pytest.raises(DoesNotFit, match="'b' takes 2 workers of 'k' but only 1 are free"):
        place([RoundTask("a", "k", 1), RoundTask("b", "k", 2)], SERVERS, {"a": ("k1",)})


@given(st.data())
def test_a_placement_gives_each_worker_one_task_and_renews_unchanged_tasks(data: st.DataObject) -> None:
    held: dict[str, tuple[str, ...]] = {}
    for _ in range(3):
        sizes = data.draw(st.lists(st.integers(1, 4), max_size=5))
        tasks, room = [], 8
        for number, size in enumerate(sizes):
            if size <= room:
                tasks.append(RoundTask(str(number), "v", size))
                room -= size
        placed = place(tasks, SERVERS, held)
        workers = [worker for own in placed.workers.values() for worker in own]
        assert len(workers) == len(set(workers)) == sum(task.scale for task in tasks)
        for task in tasks:
            assert len(placed.workers[task.key]) == task.scale
            assert (task.key in placed.renewed) == (len(held.get(task.key, ())) == task.scale)
            if task.key in placed.renewed:
                assert placed.workers[task.key] == held[task.key]
        held = dict(placed.workers)
