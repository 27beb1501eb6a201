"""Plans as files, the rules of a search, and the devices."""

from __future__ import annotations

import json
from math import inf

import pytest

from agileml.errors import BadArgument
from agileml.pipeline.plan.parallel_plan import (
    SplitRequest,
    Topology,
    plan_from_json,
)
from agileml.pipeline.profile.model_profile import (
    BadProfile,
    cost_rules,
)
from tests.agileml.pipeline.plan.test_planner import blocks, planned


def test_a_plan_is_read_back() -> None:
    best = planned(blocks())
    assert plan_from_json(json.loads(json.dumps(best.to_json()))) == best


@pytest.mark.parametrize("content", [[], {}, {"stages": [{}]}, {"stages": [1]}, {"stages": []}])
def test_not_a_plan(content: object) -> None:
    with pytest.raises(BadProfile, match=r"write (it again|one) with spotctl lab parallel plan"):
        plan_from_json(content)


def test_rules_are_checked() -> None:
    with pytest.raises(BadArgument, match="sync is 'star'; choose from ring, shared"):
        cost_rules("star", 1.0, inf, "sgd")
    with pytest.raises(BadArgument, match="optimizer is 'lion'"):
        SplitRequest(Topology((1,), (1.0,)), 1, cost_rules("ring", 1.0, inf, "lion"))


def test_topologies_are_checked() -> None:
    with pytest.raises(BadProfile, match="2 levels of devices but 1 bandwidths"):
        Topology((2, 2), (1.0,))
    with pytest.raises(BadProfile, match="at least one component"):
        Topology((2,), (0.0,))
