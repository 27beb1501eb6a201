"""Plans on recorded fleets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from agileml.errors import BadArgument
from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings
from agileml.pipeline.elastic.layouts import LayoutRules, layouts
from agileml.pipeline.elastic.seats import RunBatches
from agileml.pipeline.plan.parallel_plan import ParallelPlan, SplitRequest, Topology, simulate
from agileml.pipeline.plan.planner import plan
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile
from spotctl.lab.simulate_fleet import FleetChange, FleetReplay, simulate_fleet

LAYERS = tuple(LayerCost(f"l{i}", 0.01, 0.02, 1e5, 4e5, 4e6) for i in range(8))
FOUR = tuple(f"n{i}" for i in range(4))
STEADY = [FleetChange(0, FOUR, ()), FleetChange(600, (), ())]
SHRINKING = [
    FleetChange(0, FOUR, ()),
    FleetChange(301.3, (), ("n0", "n2")),
    FleetChange(600, (), ()),
]


def planned(scheme: str = "flush", stages: int | None = 4) -> ParallelPlan:
    request = SplitRequest(Topology((4,), (1e9,)), 64, scheme=scheme, stages=stages)
    return plan([ModelProfile("net", 4, LAYERS, 1e5)], request)


@pytest.mark.parametrize("scheme", ["flush", "gpipe", "interleaved", "2bw", "pipedream"])
def test_a_steady_fleet_is_as_fast_as_the_plan(scheme: str) -> None:
    stages = None if scheme == "pipedream" else 2
    # A pipeline without a flush drains for a copy.
    given = replace(planned(scheme, stages), every=400 if scheme == "pipedream" else 16)
    result = simulate_fleet(given, STEADY, 0)
    assert result.samples_per_second == pytest.approx(
        simulate(given, 6).samples_per_second, rel=0.06
    )
    assert result.samples <= result.bound_samples * 1.001
    assert (result.redone_samples, result.layouts) == (0, 2)
    assert result.machine_seconds == 2400


def test_machines_that_are_warned_lose_no_work() -> None:
    given = planned(stages=2)
    steady, warned, unwarned = (
        simulate_fleet(given, fleet, warning)
        for fleet, warning in ((STEADY, 0), (SHRINKING, 60), (SHRINKING, 0))
    )
    assert warned.redone_samples == 0 < unwarned.redone_samples < 64 * 2
    assert warned.samples < steady.samples
    assert (
        warned.machine_seconds == unwarned.machine_seconds == pytest.approx(4 * 301.3 + 2 * 298.7)
    )
    assert 0 < warned.idle < 1


def test_too_few_machines_train_nothing() -> None:
    result = simulate_fleet(
        planned(stages=4), [FleetChange(0, FOUR[:3], ()), FleetChange(60, (), ())], 0
    )
    assert (result.batches, result.layouts, result.bound_samples, result.idle) == (0, 0, 0, 1)


def test_rare_copies_cost_the_work_since_the_last_one() -> None:
    """Without another holder of a layer, all return to the copy."""
    later = [
        FleetChange(0, FOUR, ()),
        FleetChange(301.3, ("n9",), ("n0",)),
        FleetChange(600, (), ()),
    ]
    often, seldom = (
        simulate_fleet(replace(planned(stages=4), every=n), later, 0) for n in (1, 100)
    )
    assert often.redone_samples < seldom.redone_samples
    assert often.samples > seldom.samples


def test_tensor_parallelism_is_refused() -> None:
    with pytest.raises(
        BadArgument, match="tensor is 2: fleets are played without tensor parallelism"
    ):
        simulate_fleet(replace(planned(), tensor=2), STEADY, 0)


class OneByOne(FleetReplay):
    """Plays every work order alone."""

    def _work(self, working: Sequence[tuple[str, RunBatches]], now: float, until: float) -> None:
        super()._work(working, now, min(now, until))


@pytest.mark.parametrize(("scheme", "every"), [("flush", 1), ("flush", 7), ("2bw", 5)])
def test_work_that_nothing_disturbs_is_played_as_one(scheme: str, every: int) -> None:
    options = layouts([0.1] * 6, LayoutRules(scheme, 8), 4)

    def played(kind: type[FleetReplay]) -> tuple[int, float, list[int]]:
        controller = ElasticController(ElasticSettings(scheme, 10**9, options, [1e6] * 6, every))
        replay = kind(
            controller,
            lambda layout, batches: 0.7391 * batches / len(layout.seats()),
            [1e6] * 6,
            bandwidth=1e9,
        )
        for node in FOUR:
            replay.put(0, partial(controller.join, node))
        for at, node in ((33.3, "n1"), (70.1, "n3"), (90.7, "n0")):
            replay.put(at, partial(controller.lose, node))
            replay.put(at + 5, partial(controller.join, f"{node}b"))
        batches, redone = replay.run(150)
        assert replay.queue
        return batches, redone, [record.batch for record in controller.history]

    at_once, one_by_one = played(FleetReplay), played(OneByOne)
    assert at_once[2] == one_by_one[2]
    assert at_once[1] == pytest.approx(one_by_one[1])
    assert at_once[0] == one_by_one[0]
