"""Stopping criteria, by hand."""

from __future__ import annotations

import pytest

from agileml.errors import BadArgument
from agileml.job import Convergence, Observation, Stopping


def history(*losses: float | None) -> list[Observation]:
    return [Observation(clock, 2.0 * clock, loss) for clock, loss in enumerate(losses, 1)]


@pytest.mark.parametrize(
    ("stopping", "losses", "reason"),
    [
        (Stopping(clocks=3), (9, 9), None),
        (Stopping(clocks=3), (9, 9, 9), "3 clocks done"),
        (Stopping(seconds=5), (9, 9), None),
        (Stopping(seconds=5), (9, 9, 9), "6.0 s of 5 s elapsed"),
        (Stopping(loss=0.5), (0.4, 0.6), None),
        (Stopping(loss=0.5), (0.6, 0.5), "loss 0.5 reached the target 0.5"),
        (Stopping(loss=0.5), (0.6, None), None),
        (Stopping(loss=0.5, clocks=2), (0.6, None), "2 clocks done"),
        (Stopping(clocks=1), (), None),
    ],
)
def test_criteria(stopping: Stopping, losses: tuple[float | None, ...], reason: str | None) -> None:
    assert stopping.reason(history(*losses)) == reason


@pytest.mark.parametrize(
    ("losses", "reached"),
    [
        ((8, 4, 2), False),
        ((8, 4, 2, 1), False),
        ((8, 4, 3.95, 3.98), True),
        ((8, 4, 3.0, 9.0), False),
        ((8, 4, 9, 9), True),
        ((4, 4), False),
        ((-4, -5, -6), False),
        ((-6, -6.01, -6.02), True),
        ((0, 0, 0), False),
    ],
)
def test_convergence_compares_the_last_losses_with_the_best_before(
    losses: tuple[float, ...], reached: bool
) -> None:
    assert Convergence(tolerance=0.05, window=2).reached(losses) == reached
    reason = Stopping(converged=Convergence(0.05, 2)).reason(history(*losses))
    assert (reason is not None) == reached


@pytest.mark.parametrize(
    ("criteria", "problem"),
    [
        ({}, "no stopping criterion; set clocks, seconds, loss or converged"),
        ({"clocks": 0}, "clocks is 0; it must be a whole number from 1"),
        ({"seconds": float("nan")}, "seconds is nan; it must be a finite number"),
        ({"loss": float("nan")}, "loss is nan; it must be a finite number"),
        ({"converged": 0.1}, "converged is 0.1; it must be a Convergence"),
    ],
)
def test_criteria_are_checked(criteria: dict[str, object], problem: str) -> None:
    with pytest.raises(BadArgument, match=problem):
        Stopping(**criteria)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((1.0,), "converged is 1.0; it must be a finite number from 0 to"),
        ((0.1, 0), "the window of converged is 0"),
    ],
)
def test_convergence_is_checked(arguments: tuple[float, int], problem: str) -> None:
    with pytest.raises(BadArgument, match=problem):
        Convergence(*arguments)
