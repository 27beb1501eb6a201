"""The solver interface: optima, named contradictions, changes, and growing programs."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.lp import (
    INF,
    CannotHold,
    ConstraintRows,
    GrowingSolver,
    LinearProgram,
    Solver,
    at_least,
    at_most,
)


def rows(kind: str, matrix: list[list[float]], bounds: list[float]) -> ConstraintRows:
    dense = np.array(matrix)
    row, column = np.nonzero(dense)
    make = at_most if kind == "cap" else at_least
    return make(
        f"{kind} {{}}", range(len(bounds)), row, column, dense[row, column], np.array(bounds)
    )


def program(gain: list[float], *kinds: ConstraintRows) -> LinearProgram:
    return LinearProgram(np.array(gain), np.zeros(len(gain)), np.full(len(gain), INF), kinds)


def test_a_solution_has_a_point_a_value_and_prices() -> None:
    found = Solver(program([3, 2], rows("cap", [[1, 1], [1, 0]], [4, 3]))).optimum()
    assert found.x == pytest.approx([3, 1])
    assert found.value == pytest.approx(11)
    assert np.abs(found.prices) == pytest.approx([2, 1])


def test_a_contradictory_constraint_is_named() -> None:
    impossible = program(
        [1, 1], rows("cap", [[1, 0], [0, 1]], [1, 1]), rows("need", [[1, 0], [1, 1]], [0.5, 100])
    )
    with pytest.raises(CannotHold, match=r"^cannot be met: need 1$"):
        Solver(impossible).optimum()


def test_several_contradictory_constraints_are_counted() -> None:
    impossible = program(
        [1], rows("cap", [[1]], [1]), rows("need", [[1], [2], [1]], [50, 100, 0.5])
    )
    with pytest.raises(CannotHold, match=r"^cannot be met: "):
        Solver(impossible).optimum()


def test_an_unbounded_objective_is_refused() -> None:
    with pytest.raises(CannotHold, match="no constraint bounds the objective"):
        Solver(program([1, 1], rows("cap", [[1, 0]], [1]))).optimum()


def test_a_changed_program_has_the_optimum_of_a_new_one() -> None:
    solver = Solver(
        program([3, 2], rows("cap", [[1, 1], [1, 0]], [4, 3]), rows("need", [[0, 1]], [0]))
    )
    solver.optimum()
    solver.set_entry(0, 1, 2.0)
    solver.set_gain(np.array([1.0, 1.0]))
    solver.set_column(0, 0.0, 2.0)
    solver.add_rows(rows("need", [[0, 1]], [0.75]))
    assert solver.optimum().x == pytest.approx([2, 1])
    solver.set_columns(np.array([0, 1]), np.zeros(2), np.array([1.0, 0.8]))
    assert solver.optimum().x == pytest.approx([1, 0.8])


def test_after_a_brief_refusal_a_program_that_changed_back_has_its_optimum() -> None:
    solver = Solver(program([-1, -2], rows("need", [[1, 1]], [2])), dual=True, brief=True)
    for most, expected in ((3.0, [2, 0]), (0.5, None), (1.5, [1.5, 0.5])):
        solver.set_columns(np.array([0, 1]), np.zeros(2), np.array([most, 1.0]))
        if expected is None:
            with pytest.raises(CannotHold, match="no values satisfy all constraints"):
                solver.optimum()
        else:
            assert solver.optimum().x == pytest.approx(expected)


def test_a_start_from_a_useless_basis_ends_at_the_optimum() -> None:
    first = Solver(program([1, 1], rows("cap", [[1, 2], [3, 1]], [4, 6])))
    first.optimum()
    again = Solver(program([3, 2], rows("cap", [[1, 1], [1, 0]], [4, 3])), first.basis())
    assert again.optimum().value == pytest.approx(11)


@pytest.mark.parametrize("seed", range(20))
def test_a_growing_program_ends_at_the_optimum_of_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = (rng.random((8, 300)) * (rng.random((8, 300)) < 0.4)).tolist()
    whole = program(rng.uniform(0, 1, 300).tolist(), rows("cap", [[1.0] * 300, *matrix], [5.0] * 9))
    growing = GrowingSolver(whole, np.arange(3))
    found, expected = growing.optimum(), Solver(whole).optimum()
    assert found.value == pytest.approx(expected.value, rel=1e-7)
    assert whole.gain @ found.x == pytest.approx(expected.value, rel=1e-7)
    growing.set_gain(whole.gain[::-1].copy())
    solver = Solver(LinearProgram(whole.gain[::-1].copy(), whole.lower, whole.upper, whole.rows))
    assert growing.optimum().value == pytest.approx(solver.optimum().value, rel=1e-7)
