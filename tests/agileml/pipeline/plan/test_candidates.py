"""Which pipelines a plan compares, and what it says of those that cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
from agileml.pipeline.plan.planner import plan as best_plan
from agileml.pipeline.profile.model_profile import BadProfile
from tests.agileml.pipeline.test_tensor_parts import COSTS, PROFILE


def test_the_planner_compares_every_number_of_devices_that_can_share_the_parts() -> None:
    """Two of four devices exchange two parts each: twice as many bytes as with two parts of the
    same size.
    """
    profile = replace(
        PROFILE, layers=tuple(replace(cost, parts=4 if cost.parts > 1 else 1) for cost in COSTS)
    )
    chosen = best_plan([profile], SplitRequest(Topology((4,), (1e6,)), 8, stages=2, tensor=2))
    assert sum(
        stage.forward_seconds + stage.backward_seconds for stage in chosen.stages
    ) == 3 * 3.0 + 2 * (1.5 + 4.0)
    listed = {
        name for name, _ in best_plan([profile], SplitRequest(Topology((4,), (1e6,)), 8)).rejected
    }
    assert {f"tensor {degree}" in " ".join(listed) for degree in (2, 4)} == {True}
    with pytest.raises(
        BadProfile, match="layer '1' has 4 parts, and tensor is 3: use a divisor of 4"
    ):
        best_plan([profile], SplitRequest(Topology((3,), (1e6,)), 8, tensor=3))


def test_tensor_parallelism_that_devices_cannot_share_is_listed() -> None:
    chosen = best_plan([PROFILE], SplitRequest(Topology((3,), (1e6,)), 6))
    assert chosen.tensor == 1
    assert "a server has 3 devices" in dict(chosen.rejected)["tensor 2"]
