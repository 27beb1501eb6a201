"""Divisions that take the solver hundreds of nodes, against exact programs written from the definition."""

from __future__ import annotations

import pytest

from tests.bidbrain.decision.exact_division import case_of, worst_of


@pytest.mark.parametrize("number", [3])
def test_sums_of_the_smallest_shares_are_the_best(number: int) -> None:
    """`python -m tests.bidbrain.decision.exact_division` compares 50. In the first case, 50 nodes lost 1%."""
    ratio = worst_of(*case_of(number))
    assert ratio is not None
    assert ratio > 0.997
