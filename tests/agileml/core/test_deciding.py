"""What the controller makes of the gradients of a clock."""

from __future__ import annotations

import math

import pytest

from agileml.core.deciding import measured
from agileml.policies.dbw import GradientsSummed
from agileml.protocol.messages import GradientSums
from agileml.work import Accepted, WorkPlan

PLAN = WorkPlan((2, 2), 0, 1)
"""Two shards of two items; all of them are a clock."""

WHOLE, HALF = (
    Accepted(clock, covers) for clock, covers in ((1, ((0, 0, 2), (1, 0, 2))), (2, ((0, 0, 2),)))
)


def test_sums_of_several_partitions_become_means_of_one_gradient() -> None:
    """Clock 2 has one of two gradients; its sum is over 2 items, that of clock 1 over 4."""
    parts = [GradientSums(1, 8.0, 16.0, 40.0), GradientSums(1, 2.0, 4.0, -8.0)]
    assert measured(PLAN, HALF, parts, 2, WHOLE) == GradientsSummed(2, 1.0, 5.0, None, 4.0)
    both = [GradientSums(2, 20.0, 16.0, None), GradientSums(2, 4.0, 4.0, 1.0)]
    assert measured(PLAN, WHOLE, both, 2, None) == GradientsSummed(1, 2.0, 1.25, 9.5, None)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_without_a_usable_product_of_a_partition_there_is_none(unknown: float | None) -> None:
    parts = [GradientSums(1, 8.0, 16.0, 40.0), GradientSums(1, 2.0, 4.0, unknown)]
    found = measured(PLAN, HALF, parts, 2, WHOLE)
    assert found is not None
    assert found.along is None
