"""Models of PyTorch in pipelines, next to plain PyTorch on the same microbatches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples import PIPELINE_PROCESSES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402  # torch may be missing

from agileml.errors import BadArgument, JobFailed  # noqa: E402
from agileml.pipeline.builtin import squared_error  # noqa: E402
from agileml.pipeline.elastic.seats import PipelineLayout  # noqa: E402
from agileml.pipeline.model.base import PipelineModel, UpdateRule  # noqa: E402
from agileml.pipeline.optimizers import Optimizer, TorchOptimizer  # noqa: E402
from agileml.pipeline.run.local import train_local, train_simulated  # noqa: E402
from agileml.pipeline.run.training import PipelinePlan  # noqa: E402
from agileml.pipeline.tensor_parts import split_layer  # noqa: E402
from agileml.pipeline.torch_layers import (  # noqa: E402
    TorchLayer,
    TorchLoss,
    torch_layers,
)
from spotctl.lab.profiler import profiled  # noqa: E402
from tests.agileml.pipeline.model.torch_constructs import (  # noqa: E402
    CONSTRUCTS,
    MICROBATCHES,
    SGD,
    UPDATES,
    Construct,
    differences,
    largest_difference,
    plain_torch,
)
from tests.agileml.pipeline.model.torch_evictions import problem  # noqa: E402
from tests.agileml.pipeline.model.torch_networks import halved, normalized  # noqa: E402
from tests.agileml.pipeline.model.torch_pipelining import losses_or_error  # noqa: E402
from tests.agileml.pipeline.oracle import same  # noqa: E402

BY_NAME = {construct.name: construct for construct in CONSTRUCTS}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.sampled(15)
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
def test_a_pipeline_trains_as_plain_pytorch(construct: Construct) -> None:
    losses, weights = differences(construct)
    assert losses <= 1e-6
    assert weights <= 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_evictions_change_nothing(seed: int) -> None:
    assert problem(seed) is None


@PIPELINE_PROCESSES
@pytest.mark.slow
@pytest.mark.parametrize("name", ["BatchNorm", "bfloat16 weights"])
def test_processes_train_as_plain_pytorch(name: str) -> None:
    construct = BY_NAME[name]
    plan = PipelinePlan(UPDATES, MICROBATCHES, least_stages=2)
    result = train_local(construct.model(), construct.rule, plan, 2)
    expected, _ = plain_torch(construct)
    assert largest_difference([result.losses[k] for k in sorted(result.losses)], expected) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BatchNorm", "bfloat16 weights"])
def test_another_process_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    construct = BY_NAME[name]
    for batches in (2, UPDATES):
        plan = PipelinePlan(batches, MICROBATCHES, least_stages=2)
        result = train_local(
            construct.model(), construct.rule, plan, 2, checkpoint=tmp_path / "run.npz"
        )
    expected, _ = plain_torch(construct)
    assert largest_difference([result.losses[k] for k in sorted(result.losses)], expected) <= 1e-6


@PIPELINE_PROCESSES
@pytest.mark.slow
def test_the_pipelining_of_pytorch_has_the_same_losses() -> None:
    construct = BY_NAME["BatchNorm"]
    expected, _ = plain_torch(construct)
    theirs = losses_or_error(construct.name, "ScheduleGPipe")
    assert not isinstance(theirs, str), theirs
    assert largest_difference(theirs, expected) <= 1e-6


def test_double_buffering_clips_by_the_norm_of_all_stages() -> None:
    construct = BY_NAME["clipping by the norm of all stages"]
    results = [
        train_simulated(
            construct.model(),
            construct.rule,
            PipelinePlan(UPDATES, MICROBATCHES, "2bw", least_stages=stages),
            stages,
        )
        for stages in (1, 3)
    ]
    assert results[0].losses == results[1].losses
    assert same(results[0].weights, results[1].weights)


@pytest.mark.parametrize("build", [halved, normalized], ids=["bfloat16", "BatchNorm"])
def test_real_models_are_profiled(build: Callable[[], nn.Sequential]) -> None:
    construct = next(construct for construct in CONSTRUCTS if construct.build is build)
    (profile,) = profiled("real", lambda _: construct.model(), [4], repeats=1)
    assert [layer.name for layer in profile.layers] == [
        f"{i}:{type(part).__name__}" for i, part in enumerate(build())
    ]


# Settings of a plan.
def trained(model: PipelineModel, rule: UpdateRule, **how: Any) -> None:  # noqa: ANN401
    train_simulated(model, rule, PipelinePlan(2, how.pop("batch", 4), **how), 2)


TWO = {2: PipelineLayout((((0, 6),), ((0, 6),)), (2, 2))}


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda: trained(BY_NAME["BatchNorm"].model(), TorchOptimizer(SGD), layouts=TWO),
            r"layer 1 has running statistics \(running_mean, running_var, num_batches_tracked\), which copies",
        ),
        (
            lambda: trained(
                BY_NAME["tied weights, stages apart"].model(),
                Optimizer(),
                batch=1,
                scheme="pipedream",
            ),
            "layers 0, 3 share a weight, and the stages of pipedream update at different times: "
            "use flush or 2bw",
        ),
        (
            lambda: trained(
                BY_NAME["Sequential, SGD"].model(), TorchOptimizer(SGD, clip_norm=-1.0)
            ),
            "clip_norm is -1",
        ),
        (lambda: trained(BY_NAME["bfloat16 weights"].model(), Optimizer()), "use .*TorchOptimizer"),
        (
            lambda: trained(
                BY_NAME["Sequential, SGD"].model(),
                TorchOptimizer(SGD, torch.optim.lr_scheduler.ReduceLROnPlateau),
            ),
            "ReduceLROnPlateau depends on a loss",
        ),
        (
            lambda: torch_layers(lambda: nn.Linear(2, 2)),
            "Linear is not a list of layers: build a torch.nn.Sequential",
        ),
        (
            lambda: trained(
                PipelineModel(
                    split_layer([TorchLayer(partial(nn.BatchNorm1d, 8))] * 2),
                    squared_error,
                    with_targets,
                ),
                Optimizer(),
            ),
            "layer 0 is a part of a split layer and has running statistics",
        ),
        (
            lambda: trained(
                PipelineModel(
                    [TorchLayer(partial(nn.LSTM, 8, 8))], TorchLoss(nn.MSELoss()), with_targets
                ),
                TorchOptimizer(SGD),
            ),
            "module LSTM returned tuple with a tuple: return a tensor, or a tuple of tensors",
        ),
    ],
)
def test_refused(work: Callable[[], object], message: str) -> None:
    with pytest.raises((BadArgument, JobFailed), match=message):
        work()


def with_targets(number: int) -> tuple[Any, Any]:
    inputs = np.random.default_rng(number).standard_normal((4, 8)).astype(np.float32)
    return inputs, inputs
