"""More jobs than are divided exactly: equal ones still get equal shares, up to one machine."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.decision.whole_machines import IntegerProgram, MachineClaim, fairest


@pytest.mark.parametrize("seed", range(14))
def test_equal_jobs_differ_by_at_most_one_machine(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, each = int(rng.integers(7, 10)), int(rng.integers(1, 5))
    quota = each * int(rng.integers(jobs, 12 * jobs))
    claims = [MachineClaim((1.0,), 1, 100, ((0,),))] * jobs
    held = fairest(tuple(claims), (SharedQuota((float(each),), float(quota)),))
    assert held is not None
    assert held.sum() == quota // each
    assert held.max() - held.min() <= 1


def test_equal_jobs_need_not_be_neighbors() -> None:
    small, large = MachineClaim((1.0,), 1, 9, ((0,),)), MachineClaim((1.0,), 2, 9, ((0,),))
    held = fairest((small, large, small), (SharedQuota((1.0,), 8.0),))
    assert held is not None
    assert held[:, 0].tolist() == [3, 3, 2]


@pytest.mark.parametrize("start", [[0.0, 0.0], [1.0, 2.0], [3.0, 3.0]])
def test_a_start_does_not_change_the_optimum(start: list[float]) -> None:
    """The last one violates a row."""
    program = IntegerProgram()
    first, second = program.column(upper=3.0, whole=True), program.column(upper=3.0, whole=True)
    program.row({first: 1.0, second: 1.0}, upper=3.0)
    best = program.best({first: 1.0, second: 2.0}, np.array(start))
    assert best is not None
    assert best.tolist() == [0.0, 3.0]


def test_a_division_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [MachineClaim((1.0, 0.5), 1, 7, ((0, 1),)), MachineClaim((0.25, 1.0), 1, 7, ((0, 1),))]
    quotas = [SharedQuota((2.0, 1.0), 11.0)]
    held = fairest(tuple(claims), tuple(quotas))
    monkeypatch.delattr(IntegerProgram, "best")
    assert fairest(tuple(claims), tuple(quotas)) is held


@pytest.mark.parametrize(
    ("value", "needs"),
    [((1.0, 1e-18), ()), ((1.0, 0.5), (((1e16, 1e16), 1.0),)), ((1.0, 1e-18), (((1e16, 1.0), 1.0),))],
)
def test_figures_of_any_size_are_divided(
    value: tuple[float, ...], needs: tuple[tuple[tuple[float, ...], float], ...]
) -> None:
    """The quota holds no machine of the first kind."""
    claims = [MachineClaim(value, 1, 8, ((0, 1),), needs)] * 2
    held = fairest(tuple(claims), (SharedQuota((8.0, 2.0), 4.0),))
    assert held is not None
    assert held.tolist() == [[0, 1], [0, 1]]
