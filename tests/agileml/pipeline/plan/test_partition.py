"""Splits of known networks, and of random ones against brute force."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agileml.pipeline.plan.parallel_plan import ModelSplit, Topology, in_flight
from agileml.pipeline.plan.partition import flat_splits, level_splits, partition
from agileml.pipeline.profile.model_profile import (
    BadProfile,
    CostRules,
    LayerCost,
    ModelProfile,
    SpanTables,
    stage_seconds,
)
from tests.agileml.pipeline.plan.brute_force import mismatch, straight_mismatch
from tests.agileml.pipeline.plan.networks import alexnet, resnet50, vgg16

SIXTEEN = Topology((16,), (1.25e9,))
FOUR = Topology((4,), (1e9,))
SERVERS = Topology((4, 4), (10e9, 1.25e9))


def flat(profile: ModelProfile, topology: Topology, rules: CostRules = CostRules()) -> ModelSplit:  # noqa: B008
    """The best split over exactly all devices."""
    return flat_splits(SpanTables.of(profile), topology, rules)[-1]


def levels(profile: ModelProfile, topology: Topology, rules: CostRules = CostRules()) -> ModelSplit:  # noqa: B008
    return level_splits(SpanTables.of(profile), topology, rules)[-1]


def data_parallel_seconds(profile: ModelProfile, topology: Topology) -> float:
    tables = SpanTables.of(profile)
    rate = topology.bandwidths[-1]
    return float(
        stage_seconds(tables.seconds, tables.weights, topology.devices, rate, CostRules())[0, -1]
    )


def test_vgg16_on_16_devices_replicates_the_convolutions_15_times() -> None:
    profile = vgg16()
    split = flat(profile, SIXTEEN)
    assert str(split) == "15-1"
    assert profile.layers[split.stages[1].first].name == "fc6"
    assert profile.seconds / split.seconds == pytest.approx(15.1, abs=0.05)
    assert data_parallel_seconds(profile, SIXTEEN) / split.seconds == pytest.approx(1.58, abs=0.005)
    assert str(levels(profile, SIXTEEN)) == "15-1"


def test_alexnet_on_16_devices_is_limited_by_a_link() -> None:
    profile = alexnet()
    split = flat(profile, SIXTEEN)
    assert str(split) == "15-1"
    assert profile.layers[split.stages[1].first].name == "fc6"
    assert profile.seconds / split.seconds == pytest.approx(6.05, abs=0.005)
    assert data_parallel_seconds(profile, SIXTEEN) / split.seconds == pytest.approx(1.52, abs=0.005)
    # Seven devices reach that link's limit too.
    chosen = partition(profile, SIXTEEN, CostRules())
    assert str(chosen) == "6-1"
    assert chosen.seconds == pytest.approx(split.seconds)


def test_resnet50_is_trained_data_parallel_on_a_ring_and_in_two_stages_on_a_shared_bus() -> None:
    assert str(flat(resnet50(), SIXTEEN)) == "16"
    assert str(flat(resnet50(), SIXTEEN, CostRules(sync="shared"))) == "8-8"


@pytest.mark.parametrize(("network", "split"), [(vgg16, "3-1"), (alexnet, "3-1"), (resnet50, "4")])
def test_four_devices(network: Callable[[], ModelProfile], split: str) -> None:
    assert str(partition(network(), FOUR, CostRules())) == split
    assert str(levels(network(), FOUR)) == split


@pytest.mark.parametrize(
    ("network", "speedup", "convolutions"), [(vgg16, 12.1, 12), (alexnet, 6.05, 12)]
)
def test_levels_hand_out_whole_servers(
    network: Callable[[], ModelProfile], speedup: float, convolutions: int
) -> None:
    profile = network()
    split = levels(profile, SERVERS)
    assert profile.seconds / split.seconds == pytest.approx(speedup, rel=0.005)
    assert split.stages[0].replicas == convolutions
    assert profile.layers[split.stages[1].first].name == "fc6"


def test_levels_synchronize_once_per_round_of_servers() -> None:
    """Strides in the first convolution of a block; the flat search finds 16x."""
    profile = resnet50(stride_first=True)
    split = levels(profile, SERVERS)
    assert str(split) == "16"
    assert profile.seconds / split.seconds == pytest.approx(8.1, abs=0.05)
    assert profile.seconds / partition(profile, SERVERS, CostRules()).seconds == pytest.approx(16)


def test_the_flat_search_spans_servers() -> None:
    profile = vgg16()
    result = partition(profile, SERVERS, CostRules())
    assert str(result) == "15-1"
    assert profile.seconds / result.seconds == pytest.approx(15.1, abs=0.05)
    assert any(name.startswith("levels 12") for name, _ in result.rejected)
    assert in_flight([stage.replicas for stage in result.stages])[0] == 2


def test_without_overlap_synchronization_is_added() -> None:
    profile = ModelProfile("model", 1, (LayerCost("a", 1.0, 1.0, 0, 0, 10.0),))
    two = Topology((2,), (10.0,))
    assert flat(profile, two).seconds == 1.0  # max(2, 10/10) / 2
    assert flat(profile, two, CostRules(overlap=0.0)).seconds == 1.5
    assert flat(profile, two, CostRules(overlap=0.5)).seconds == 1.25


def test_no_stage_exceeds_the_memory() -> None:
    layers = tuple(LayerCost(f"l{i}", 1.0, 1.0, 0.1, 1.0, 10.0) for i in range(4))
    profile, four = ModelProfile("m", 1, layers), Topology((4,), (1e9,))
    assert str(partition(profile, four, CostRules())) == "4"
    limited = partition(profile, four, CostRules(memory_bytes=65.0))
    assert len(limited.stages) > 1
    with pytest.raises(
        BadProfile,
        match=r"layer 'l0' needs 21 bytes, and a device has 20: use smaller microbatches",
    ):
        partition(profile, four, CostRules(memory_bytes=20.0))
    with pytest.raises(BadProfile, match="no split of m over 1 devices fits"):
        partition(profile, Topology((1,), (1.0,)), CostRules(memory_bytes=22.0))


def test_inputs_in_flight_of_replicated_stages() -> None:
    assert in_flight([2, 1, 1]) == [2, 2, 1]
    assert in_flight([1, 1, 1, 1]) == [4, 3, 2, 1]
    assert in_flight([2, 1]) == [2, 1]


HIDDEN_BY_MEMORY = [
    24,
    53,
    68,
    214,
    302,
    445,
    556,
    639,
    722,
    756,
    901,
    1177,
    1187,
    1236,
    1323,
    1347,
    1501,
    1730,
    1941,
]
"""Models whose fastest pipeline by levels does not fit, while another by levels beats all flat
ones."""


@pytest.mark.parametrize("seed", [*range(40), *HIDDEN_BY_MEMORY])
def test_the_choice_equals_brute_force(seed: int) -> None:
    assert mismatch(seed) == ""


@pytest.mark.parametrize("seed", range(60))
def test_the_cuts_of_straight_pipelines_equal_brute_force(seed: int) -> None:
    assert straight_mismatch(seed) == ""
