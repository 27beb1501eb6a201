"""Random losses and joins, decided by the real controller, change no loss."""

from __future__ import annotations

import pytest

from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.run.local import parse_faults, train_local
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.pipeline.oracle import same
from tests.agileml.pipeline.run.elastic_schedules import problem
from tests.agileml.pipeline.run.test_local import MODEL, MOMENTUM, STRAIGHT, undisturbed
from tests.samples import PIPELINE_PROCESSES

TWICE = PipelineLayout((((0, 2), (3, 5)),) * 2, (2, 2))


# In 840, the links of a node are cut while frames of one that is gone are still on their way to it.
@pytest.mark.parametrize("seed", [*range(25), 840])
def test_random_schedules_change_nothing(seed: int) -> None:
    assert problem(seed) is None


@PIPELINE_PROCESSES
def test_evictions_with_and_without_warning_and_joins() -> None:
    """Real processes: kills with and without another replica, a warned node, and new nodes for all
    of them.
    """
    plan = PipelinePlan(60, 4, "flush", every=3, layouts={3: STRAIGHT[3], 4: TWICE})
    faults = parse_faults("kill 2, join 2, warn 20, join 20, kill 40, join 40")
    result = train_local(MODEL, MOMENTUM, plan, 4, faults=faults)
    assert same(result.weights, undisturbed(60))
    assert result.losses.keys() == set(range(240))
    assert faults.faults == []
    assert len(result.history) >= 4
