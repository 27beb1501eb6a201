"""The mechanism: the next round by priority, and the assignment of workers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates, RoundChoice


def candidates(*rows: tuple[int, int, int, int]) -> RoundCandidates:
    """(first, second, type, scale) each."""
    return RoundCandidates(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def test_the_share_of_figure_5_5_is_realised_round_by_round() -> None:
    """X_example of section 5.3.1 on one worker of each of three types: received times converge to it from any start."""
    x = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
    row, type_ = (np.asarray(part) for part in np.nonzero(x))
    among = RoundCandidates(row, np.full(len(row), NO_JOB), type_, np.ones(len(row), dtype=np.int64))
    received, choice = np.full(len(row), 0.5), RoundChoice(among, np.ones(3))
    for _ in range(1000):
        received[choice.next(x[row, type_] / received, range(3))] += 1
    assert np.abs(received / 1000 - x[row, type_]).max() < 0.02


def test_a_big_job_waits_for_workers_and_small_ones_fill_up() -> None:
    among = candidates((0, NO_JOB, 0, 3), (1, NO_JOB, 0, 4), (2, NO_JOB, 0, 1), (3, NO_JOB, 0, 1))
    assert RoundChoice(among, np.array([4.0])).next(np.array([4.0, 3.0, 2.0, 1.0]), range(1)).tolist() == [0, 2]
    assert RoundChoice(among, np.array([4.0])).next(np.array([3.0, 4.0, 2.0, 1.0]), range(1)).tolist() == [1]


def test_no_job_runs_twice_neither_on_two_types_nor_alone_and_in_a_pair() -> None:
    among = candidates(
        (0, 1, 0, 1), (0, NO_JOB, 1, 1), (1, NO_JOB, 1, 1), (1, 2, 1, 1), (2, NO_JOB, 0, 1), (2, 3, 1, 1)
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
    chosen = RoundChoice(among, workers).next(priority, range(len(workers))).tolist()
    order = sorted(range(len(priority)), key=lambda i: (among.type[i], -priority[i], i))
    for i in range(len(priority)):
        before = [j for j in chosen if order.index(j) < order.index(i)]
        held = sum(among.scale[j] for j in before if among.type[j] == among.type[i])
        jobs = {m for j in before for m in (among.first[j], among.second[j])} - {NO_JOB}
        fits = held + among.scale[i] <= workers[among.type[i]]
        assert (i in chosen) == (fits and not jobs & {among.first[i], among.second[i]})
