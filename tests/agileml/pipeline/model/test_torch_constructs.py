"""Models of PyTorch in pipelines, next to plain PyTorch on the same microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples import PIPELINE_PROCESSES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402  # torch may be missing

from agileml.errors import BadArgument, JobFailed  # noqa: E402
from agileml.pipeline.elastic.seats import PipelineLayout  # noqa: E402
from agileml.pipeline.layers import squared_error  # noqa: E402
from agileml.pipeline.model.base import (  # noqa: E402
    ABSENT,
    PipelineModel,
    UpdateRule,
)
from agileml.pipeline.optimizers import Optimizer, TorchOptimizer  # noqa: E402
from agileml.pipeline.run.local import save_weights, train_local, train_simulated  # noqa: E402
from agileml.pipeline.run.training import PipelinePlan  # noqa: E402
from agileml.pipeline.tensor_parts import split_layer  # noqa: E402
from agileml.pipeline.torch_layers import (  # noqa: E402
    TorchLayer,
    TorchLoss,
    modules_from,
    modules_with,
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
from tests.agileml.pipeline.model.torch_networks import OneGradient, halved, normalized, plain, tied  # noqa: E402
from tests.agileml.pipeline.model.torch_pipelining import losses_or_error  # noqa: E402
from tests.agileml.pipeline.oracle import same  # noqa: E402

BY_NAME = {construct.name: construct for construct in CONSTRUCTS}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Nodes have one thread, and a sum depends on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def test_running_statistics_are_in_the_result() -> None:
    result = train_simulated(
        BY_NAME["BatchNorm"].model(), TorchOptimizer(SGD), PipelinePlan(2, 4), 2
    )
    assert list(result.buffers) == [1, 5]
    assert int(result.buffers[1][2]) == 2 * 4
    _, batch_norm, *_, last = modules_with(
        BY_NAME["BatchNorm"].model(), result.weights, result.buffers
    )
    assert torch.equal(batch_norm.running_var, torch.from_numpy(result.buffers[1][1]))
    assert torch.equal(last.weight, torch.from_numpy(result.weights[6][0]))


@pytest.mark.parametrize(
    "name", ["BatchNorm", "bfloat16 weights", "frozen parameters, weight decay"]
)
def test_a_model_file_becomes_modules(name: str, tmp_path: Path) -> None:
    construct = BY_NAME[name]
    trained = train_simulated(construct.model(), construct.rule, PipelinePlan(2, 4), 2)
    save_weights(tmp_path / "model.npz", trained)
    with np.load(tmp_path / "model.npz") as saved:
        loaded = modules_from(construct.model(), saved)
    expected = modules_with(construct.model(), trained.weights, trained.buffers)
    for module, other in zip(loaded, expected, strict=True):
        assert module.state_dict().keys() == other.state_dict().keys()
        assert all(map(torch.equal, module.state_dict().values(), other.state_dict().values()))


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


def test_only_own_layers_stay_in_memory() -> None:
    """The layers of other nodes are freed with the first pass."""
    layers = torch_layers(plain)
    weights = layers[0].initial((0, 0, 0))
    layers[0].forward(weights, np.ones((2, 8), dtype=np.float32), (0, 0, 0))
    assert vars(layers[0])["_whole"]._left == {}


def test_tied_weights_of_a_layer_are_one_weight() -> None:
    whole = torch_layers(partial(tied, between=1))
    assert [len(layer.initial((0, 0, i))) for i, layer in enumerate(whole)] == [1, 2, 1]
    inside = TorchLayer(partial(tied, between=1))
    assert len(inside.initial((0, 0, 0))) == 3


def test_sums_of_gradients_share_no_memory() -> None:
    """PyTorch may give two weights one and the same gradient."""
    layer = TorchLayer(OneGradient)
    totals = tuple(ABSENT for _ in range(3))
    inputs = np.ones(2, dtype=np.float32)
    for _ in range(3):
        _, stash = layer.forward(layer.initial((0, 0, 0)), inputs, (0, 0, 0))
        _, totals = layer.backward_into(totals, stash, inputs)
    assert [total.tolist() for total in totals] == [[3.0, 3.0], [3.0, 3.0], []]
    assert inputs.tolist() == [1.0, 1.0]
