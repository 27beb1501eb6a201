"""Tensor parallelism: two nodes compute a layer of two parts together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from agileml.errors import BadArgument
from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.elastic.layouts import over_layers
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Array, PipelineModel
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
from agileml.pipeline.plan.planner import plan as best_plan
from agileml.pipeline.profile.model_profile import BadProfile, CostRules, LayerCost, ModelProfile
from agileml.pipeline.run.local import parse_faults, train_local, train_simulated
from agileml.pipeline.run.training import PipelinePlan, planned_training
from agileml.pipeline.tensor_parts import TensorPart, pieces
from spotctl.lab.profiler import profiled
from tests.agileml.pipeline.oracle import same, split_model, trained
from tests.samples import PIPELINE_PROCESSES
from tests.spotctl.command_line import spotctl

MODEL, ADAM = split_model(), Optimizer("adam", 0.01)


@pytest.mark.parametrize("scheme", ["flush", "interleaved", "2bw", "vertical-sync"])
@pytest.mark.parametrize("recompute", [False, True])
def test_two_nodes_for_each_stage_equal_one_process(scheme: str, recompute: bool) -> None:
    batch = 1 if scheme == "vertical-sync" else 4
    plan = PipelinePlan(
        3, batch, scheme, 2 if scheme == "interleaved" else 1, recompute, 3, 2, tensor=2
    )
    result = train_simulated(MODEL, ADAM, plan, 4)
    late = {"2bw": 1, "vertical-sync": 1}.get(scheme, 0)
    expected, losses = trained(MODEL, ADAM, 3, batch, lambda _, t: max(t - late, 0))
    assert result.history[-1].layout.tensor == 2
    assert len(result.history[-1].nodes) == 4
    assert same(result.weights, expected)
    assert result.losses == losses


@pytest.mark.parametrize("tensor", [2, 4])
def test_fewer_nodes_than_parts_share_a_layer_equally(tensor: int) -> None:
    model = split_model(4)
    result = train_simulated(model, ADAM, PipelinePlan(3, 4, tensor=tensor), tensor)
    assert result.history[-1].layout.tensor == tensor
    assert [result.history[-1].layout.lanes.count(lane) for lane in range(tensor)] == [
        8 // tensor
    ] * tensor
    assert same(result.weights, trained(model, ADAM, 3, 4, lambda _, t: t)[0])


@dataclass(frozen=True)
class Noise:
    kind: str

    def __call__(self, number: int) -> tuple[Array, Array]:
        draw = np.random.default_rng(number)
        return draw.standard_normal((2, 5, 8)).astype(self.kind), draw.standard_normal(
            (2, 5, 8)
        ).astype(self.kind)


COSTS = [
    LayerCost(str(i), 1.0, 2.0, 1e6, 1e6, 8e6, parts) for i, parts in enumerate([1, 2, 1, 2, 1])
]
PROFILE = ModelProfile("split", 2, tuple(COSTS), 1e6)


def test_a_plan_with_two_devices_per_stage_is_trained_as_it_says() -> None:
    chosen = best_plan([PROFILE], SplitRequest(Topology((4,), (1e6,)), 8, stages=2, tensor=2))
    assert (chosen.tensor, chosen.devices, len(chosen.stages)) == (2, 4, 2)
    # Halves of the split layers, and a second to exchange 1 MB in each direction.
    assert sum(
        stage.forward_seconds + stage.backward_seconds for stage in chosen.stages
    ) == 3 * 3.0 + 2 * (1.5 + 2.0)
    planned = planned_training(chosen, MODEL, 3)
    result = train_simulated(MODEL, ADAM, planned, 4)
    assert result.history[-1].layout.tensor == 2
    assert same(result.weights, trained(MODEL, ADAM, 3, 4, lambda _, t: t)[0])


def test_the_planner_chooses_tensor_parallelism_where_a_layer_fits_no_device() -> None:
    profile = replace(
        PROFILE, layers=tuple(replace(cost, weight_bytes=1e6 * cost.parts**4) for cost in COSTS)
    )
    rules = CostRules(memory_bytes=60e6, optimizer="adam")
    request = SplitRequest(Topology((4,), (1e8,)), 8, rules)
    chosen = best_plan([profile], request)
    assert chosen.tensor == 2
    assert chosen.memory_bytes <= 60e6
    # Weights, gradients and Adam's two copies of 16 MB.
    assert "layer '1' needs 65,000,000 bytes" in dict(chosen.rejected)["tensor 1"]
    with pytest.raises(BadProfile, match="layer '1' needs"):
        best_plan([profile], replace(request, tensor=1))


def test_the_planner_chooses_tensor_parallelism_where_a_batch_cannot_be_shared() -> None:
    """One microbatch: neither a pipeline nor replicas keep two devices busy."""
    layers = tuple(replace(cost, parts=2) for cost in COSTS)
    fast, slow = (
        best_plan([replace(PROFILE, layers=layers)], SplitRequest(Topology((2,), (rate,)), 2))
        for rate in (1e9, 1e5)
    )
    assert (fast.tensor, slow.tensor) == (2, 1)
    # Five layers of 3 s, and parts of 1 MB each way: 10 ms, or 100 s.
    assert 2 / fast.samples_per_second == pytest.approx(5 * 3.0 / 2 + 10 * 0.001)
    assert 2 / slow.samples_per_second == pytest.approx(5 * 3.0)
    lost = dict(fast.rejected)["flush, 1, microbatch 2"]
    assert lost.startswith("49.9% slower")
    assert "86.0% slower" in dict(slow.rejected)["flush, 1, microbatch 2, tensor 2"]


def test_parts_are_profiled_as_one_layer() -> None:
    (profile,) = profiled("split", lambda _: MODEL, [3], repeats=1)
    assert [layer.parts for layer in profile.layers] == [1, 2, 1, 2, 1]
    assert profile.layers[1].weight_bytes == 2 * profile.layers[0].weight_bytes
    assert profile.layers[1].output_bytes == profile.layers[0].output_bytes


def test_what_cannot_be_split() -> None:
    dense = Dense(3, 3)
    alone = PipelineModel([dense, TensorPart(dense, 0, 2)], squared_error, Noise("float64"))
    cut = PipelinePlan(1, 4, layouts={2: PipelineLayout((((0, 1), (2, 6)),), (4,))})
    for model, plan, message in (
        (alone, PipelinePlan(1, 2), "layer 2 is not part 1 of the 2 that layer 1 begins"),
        (
            MODEL,
            PipelinePlan(1, 4, tensor=3),
            "tensor is 3: the model needs layers of 3 parts or a multiple, and its split",
        ),
        (replace(MODEL, layers=[dense]), PipelinePlan(1, 4, tensor=2), "it has no split layers"),
        (MODEL, cut, "layers 0 to 1, and one of them is a part"),
    ):
        with pytest.raises(BadArgument, match=message):
            train_simulated(model, ADAM, plan, 2)
    for request, message in (
        (SplitRequest(Topology((3,), (1e6,)), 8, tensor=2), "a server has 3 devices"),
        (
            SplitRequest(Topology((3,), (1e6,)), 8, tensor=3),
            "layer '1' has 2 parts, and tensor is 3: use a div",
        ),
    ):
        with pytest.raises(BadProfile, match=message):
            best_plan([PROFILE], request)


@PIPELINE_PROCESSES
def test_processes_share_layers_through_a_kill() -> None:
    """Four processes in two stages, and a fifth that takes the place of one that is killed."""
    layout = over_layers(PipelineLayout((((0, 1), (2, 4)),), (4,)), pieces(MODEL.layers), 2)
    plan = PipelinePlan(20, 4, every=2, layouts={4: layout}, tensor=2)
    result = train_local(MODEL, ADAM, plan, 5, faults=parse_faults("kill 3"))
    assert result.history[0].nodes[0] not in result.history[-1].nodes
    assert same(result.weights, trained(MODEL, ADAM, 20, 4, lambda _, t: t)[0])


FILE = """
from tests.agileml.pipeline.oracle import split_model

def build(microbatch):
    return split_model()
"""


def test_the_command_profiles_plans_and_trains(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILE)
    model, profile, split = (
        f"{tmp_path / 'own.py'}:build",
        tmp_path / "profile.json",
        tmp_path / "plan.json",
    )
    spotctl(
        "lab", "parallel", "profile", model, "--microbatch", "3", "--repeats", "1", "--out", profile
    )
    given = [
        "lab",
        "parallel",
        "plan",
        str(profile),
        "--devices",
        "cpu:4",
        "--bandwidth",
        "1TB/s",
        "--batch",
        "12",
    ]
    given += ["--split", "stages=2,tensor=2"]
    assert "2 devices share each split layer" in spotctl(*given).out
    split.write_text(spotctl(*given, "--json").out)
    assert spotctl("lab", "parallel", "simulate", split).code == 0
    sim = ["lab", "parallel", "train", model, "--engine", "sim", "--batches", "3", "--json"]
    shared = spotctl(*sim, "--plan", split).json
    assert (shared["plans"][-1]["tensor"], len(shared["plans"][-1]["nodes"])) == (2, 4)
    alone = spotctl(*sim, "--microbatches", "4", "--nodes", "1").json
    assert shared["loss"] == alone["loss"]
    refused = spotctl("lab", "parallel", "train", "mlp", "--engine", "sim", "--split", "tensor=2")
    assert (refused.code, "it has no split layers" in refused.error) == (2, True)
