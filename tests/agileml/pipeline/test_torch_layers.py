"""Layers that are modules of PyTorch."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from agileml.pipeline.optimizers import TorchOptimizer  # noqa: E402
from agileml.pipeline.run.local import save_weights, train_simulated  # noqa: E402
from agileml.pipeline.run.training import PipelinePlan  # noqa: E402
from agileml.pipeline.torch_layers import (  # noqa: E402
    TorchLayer,
    modules_from,
    modules_with,
    torch_layers,
)
from tests.agileml.pipeline.model.test_torch_constructs import BY_NAME  # noqa: E402
from tests.agileml.pipeline.model.torch_constructs import SGD  # noqa: E402
from tests.agileml.pipeline.model.torch_networks import plain, tied  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_dropout_draws_the_same_again() -> None:
    layer = TorchLayer(lambda: torch.nn.Dropout(0.5))
    inputs = np.ones((4, 8), dtype=np.float32)
    first, again, other = (
        layer.forward((), inputs, key)[0] for key in [(0, 1, 2), (0, 1, 2), (0, 2, 2)]
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(
        pickle.loads(cloudpickle.dumps(layer)).forward((), inputs, (0, 1, 2))[0], first
    )


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
