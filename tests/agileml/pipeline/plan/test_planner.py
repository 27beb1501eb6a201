"""The choice among schemes, depths, replicas, microbatch sizes and recomputation."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from agileml.errors import BadArgument
from agileml.pipeline.plan.parallel_plan import (
    ParallelPlan,
    SplitRequest,
    Topology,
    simulate,
)
from agileml.pipeline.plan.planner import plan
from agileml.pipeline.profile.model_profile import (
    BadProfile,
    CostRules,
    LayerCost,
    ModelProfile,
)
from tests.agileml.pipeline.plan.networks import vgg16


def blocks(
    count: int = 8,
    microbatch: int = 1,
    *,
    output_bytes: float = 1.0,
    stash_bytes: float = 10.0,
    weight_bytes: float = 100.0,
) -> ModelProfile:
    held = output_bytes, stash_bytes, weight_bytes
    layers = tuple(
        LayerCost(f"block{i}", 1.0 * microbatch, 2.0 * microbatch, *held) for i in range(count)
    )
    return ModelProfile("blocks", microbatch, layers)


BLOCKS = blocks()


def planned(
    profile: ModelProfile,
    devices: int = 4,
    rate: float = 1e6,
    memory: float = inf,
    **how: Any,  # noqa: ANN401
) -> ParallelPlan:
    rules = CostRules(memory_bytes=memory, optimizer="sgd")
    return plan(
        [profile], SplitRequest(Topology((devices,), (rate,)), how.pop("batch", 8), rules, **how)
    )


def test_data_parallelism_where_links_are_fast() -> None:
    best = planned(blocks())
    assert ([stage.replicas for stage in best.stages], best.scheme, best.bubble) == (
        [4],
        "flush",
        0.0,
    )
    assert best.samples_per_second == pytest.approx(4 / 24, rel=0.001)


def test_pipelines_where_weights_are_large() -> None:
    best = planned(blocks(weight_bytes=1e9), rate=1e6, batch=16)
    assert best.depth == 4
    assert best.scheme == "interleaved"
    flush = planned(blocks(weight_bytes=1e9), rate=1e6, batch=16, scheme="flush")
    # Six seconds per stage, 16 microbatches and three more to fill and drain.
    assert flush.samples_per_second == pytest.approx(16 / (19 * 6), rel=0.001)
    assert flush.bubble == 3 / 16
    assert any(name.startswith("flush, 1-1-1-1") for name, _ in best.rejected)


def test_messages_and_updates_take_time() -> None:
    """Each side of a cut handles two messages per microbatch, and every update is one of the
    optimizer asked for.
    """
    layers = tuple(
        replace(layer, output_seconds=0.25, update_seconds={"sgd": 0.5, "adam": 9.0})
        for layer in BLOCKS.layers
    )
    profile, far = replace(BLOCKS, layers=layers), 1e12
    for how, seconds in (
        ({"stages": 1}, 16 * 24 + 8 * 0.5),
        # The two stages in the middle have two cuts each.
        ({"stages": 4, "scheme": "flush"}, 19 * (6 + 2 * 0.25) + 2 * 0.5),
        ({"stages": 4, "scheme": "2bw"}, 16 * (6 + 2 * 0.25) + 2 * 0.5),
    ):
        chosen = planned(profile, rate=far, batch=16, pipelines=1, chunks=1, recompute=False, **how)
        assert 16 / chosen.samples_per_second == pytest.approx(seconds)
        assert simulate(chosen, 6).samples_per_second == pytest.approx(
            chosen.samples_per_second, rel=0.05
        )
    # Every microbatch has its update, in the slowest of the stages.
    late = planned(profile, rate=far, batch=16, scheme="pipedream", allow_delay=3)
    assert late.samples_per_second == pytest.approx(4 / (24 + 8 * 0.5), rel=0.01)


def test_delay_is_added_only_when_allowed() -> None:
    late = planned(blocks(weight_bytes=1e9), batch=16, allow_delay=1)
    assert (late.scheme, late.bubble, late.depth) == ("2bw", 0.0, 4)
    assert late.samples_per_second == pytest.approx(1 / 6, rel=0.001)
    later = planned(vgg16(), 16, 1.25e9, batch=1024, allow_delay=1)
    assert (later.scheme, [stage.replicas for stage in later.stages]) == ("pipedream", [15, 1])


def test_recomputation_where_the_stash_does_not_fit() -> None:
    profile = blocks(stash_bytes=1000.0, weight_bytes=1e5)
    roomy = planned(profile, rate=1e4, batch=16, stages=4, pipelines=1, scheme="flush")
    tight = planned(
        profile,
        rate=1e4,
        batch=16,
        stages=4,
        pipelines=1,
        scheme="flush",
        memory=roomy.memory_bytes - 1,
    )
    assert (roomy.recompute, tight.recompute) == (False, True)
    assert tight.samples_per_second == pytest.approx(roomy.samples_per_second * 3 / 4, rel=0.001)
    assert any("does not fit" in reason for _, reason in tight.rejected)


def test_the_microbatch_size_is_chosen() -> None:
    """Twice the samples in 1.5 times the time; but four microbatches leave a larger bubble than
    eight.
    """
    small, large = blocks(weight_bytes=1e9), blocks(microbatch=2, weight_bytes=1e9)
    request = SplitRequest(Topology((4,), (1e6,)), 8, scheme="flush")
    assert plan([small, large], request).microbatch == 1
    faster = ModelProfile(
        "blocks",
        2,
        tuple(LayerCost(layer.name, 1.0, 2.0, 1.0, 10.0, 1e9) for layer in small.layers),
    )
    assert plan([small, faster], request).microbatch == 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"stages": 9, "devices": 9}, "stages is 9, and blocks has 8 layers"),
        ({"stages": 5}, "5 stages in 1 pipelines need 5 devices, and there are 4"),
        ({"scheme": "zigzag"}, "scheme is 'zigzag'; choose from auto, gpipe"),
        ({"memory": 150.0}, "layer 'block0' needs 210 bytes, and a device has 150"),
        ({"memory": 410.0, "devices": 1}, "no plan for blocks fits: .* needs the least memory"),
        (
            {"stages": 4, "batch": 3, "scheme": "2bw"},
            "no plan for blocks: batch 3 is not a multiple",
        ),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises((BadArgument, BadProfile), match=message):
        planned(blocks(), **how)
