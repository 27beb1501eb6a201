"""PyTorch layers, built-in and user models, and the profiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agileml.errors import AgileMLError, BadArgument, JobFailed, TrainerFailed
from agileml.pipeline.builtin import Dense, cross_entropy, model_factory, squared_error
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import PipelineModel
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE, profiles_from_json
from agileml.pipeline.run.local import train_local, train_simulated
from agileml.pipeline.run.training import PipelinePlan
from spotctl.lab.profiler import profiled, profiles_to_json
from tests.agileml.pipeline.oracle import Waves, same, trained


def test_a_diverging_run_names_the_node_and_the_microbatch() -> None:
    model = PipelineModel(
        (Dense(5, 5, squash=False), Dense(5, 1, squash=False)), squared_error, Waves()
    )
    with (
        pytest.raises(JobFailed, match=r"t\d: microbatch \d+: the loss is (inf|nan)"),
        np.errstate(all="ignore"),
    ):
        train_simulated(model, Optimizer("sgd", 1e80), PipelinePlan(20, 2), 2)


def test_cross_entropy_of_known_shares() -> None:
    loss, gradient = cross_entropy(np.log(np.array([[1.0, 3.0]])), np.array([1]))
    assert loss == pytest.approx(-np.log(0.75))
    np.testing.assert_allclose(gradient, [[0.25, -0.25]])


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More threads than processors make small operations slow on a busy computer."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_transformer_in_two_stages_equals_one_process() -> None:
    model = model_factory("transformer")(2)
    plan = PipelinePlan(
        2, 2, recompute=True, layouts={2: PipelineLayout((((0, 2), (3, 5)),), (2,))}
    )
    result = train_simulated(model, Optimizer("adam", 0.003), plan, 2)
    expected, losses = trained(model, Optimizer("adam", 0.003), 2, 2, lambda _, t: t)
    assert same(result.weights, expected)
    assert result.losses == losses


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(AgileMLError, match=r"pip install 'spotctl\[torch\]'"):
        model_factory("transformer")(1)


def test_a_profile_is_what_the_planner_reads() -> None:
    profiles = profiled("mlp", model_factory("mlp"), [2, 4], repeats=1)
    assert profiles_from_json(profiles_to_json("mlp", profiles)) == profiles
    small, large = profiles
    assert [layer.weight_bytes for layer in small.layers] == [
        layer.weight_bytes for layer in large.layers
    ]
    assert [layer.output_bytes * 2 for layer in small.layers] == [
        layer.output_bytes for layer in large.layers
    ]
    assert large.layers[1].stash_bytes == 2 * 4 * 128 * 8
    assert all(layer.output_seconds > 0 for layer in small.layers)
    assert all(layer.update_seconds.keys() == OPTIMIZER_STATE.keys() for layer in small.layers)


MODEL = """
from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.model.base import PipelineModel
import numpy as np

def numbers(number):
    draw = np.random.default_rng(number)
    x = draw.standard_normal((SAMPLES, 3))
    return x, x[:, :1]

def build(microbatch):
    return PipelineModel([Dense(3, 4), Dense(4, 1, squash=False)], squared_error, numbers)

def broken(microbatch):
    return 1 / 0

def other(microbatch):
    return 7
"""


def test_a_model_of_the_user_travels_to_the_workers(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(MODEL.replace("SAMPLES", "4"))
    plan = PipelinePlan(2, 2, layouts={2: PipelineLayout((((0, 0), (1, 1)),), (2,))})
    result = train_local(model_factory(f"{file}:build")(4), Optimizer("sgd", 0.1), plan, 2)
    expected, _ = trained(
        model_factory(f"{file}:build")(4), Optimizer("sgd", 0.1), 2, 2, lambda _, t: t
    )
    assert same(result.weights, expected)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{}:missing", "has no function 'missing'"),
        ("{}:broken", "ZeroDivisionError"),
        ("{}:other", "returned int; it must return a PipelineModel"),
        ("nothing", "name mlp, transformer, split-transformer, or a function in a file"),
        ("{}x:build", "name mlp, transformer, split-transformer, or a function in a file"),
    ],
)
def test_models_that_cannot_be_made(tmp_path: Path, target: str, message: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(MODEL)
    with pytest.raises((BadArgument, TrainerFailed), match=message):
        model_factory(target.format(file))(1)


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import nonsense_of_the_test")
    with pytest.raises(TrainerFailed, match="ModuleNotFoundError"):
        model_factory(f"{file}:build")
