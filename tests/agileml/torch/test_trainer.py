"""`TorchModule` against plain PyTorch, and against itself with nodes that are evicted and
killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import agileml
from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.errors import AgileMLError, TrainerFailed
from agileml.reference import model_digest
from agileml.torch import TorchModule
from agileml.torch.data import Batches
from agileml.torch.trainer import SEED
from tests.agileml.torch.nets import (
    BATCH,
    SAMPLES,
    Normalized,
    Shared,
    adamw,
    clipped_by_hook,
    data,
    momentum,
    objective,
    trainer,
)

CLOCKS = 9
"""More than two epochs."""

FAULTS = "at clock 2 kill 1; at clock 5 evict half warn 5s"


def plain(given: TorchModule, seed: int) -> nn.Module:
    """A loop as anyone writes it: one process, whole batches, the same samples."""
    torch.manual_seed(seed)
    net = given.module()
    assert isinstance(net, nn.Module)
    made: Any = given.optimizer(net)
    optimizers = made if isinstance(made, list) else [made]
    schedulers = [given.schedule(optimizer) for optimizer in optimizers] if given.schedule else []
    samples = data()
    order = Batches(SAMPLES, BATCH, 1, shuffle=True)
    for clock in range(1, CLOCKS + 1):
        low = (clock - 1) % order.per_epoch * BATCH
        chosen = order.chosen(seed, clock, 0, low, low + order.length(clock))
        net.zero_grad()
        torch.autograd.backward(objective(net, list(samples[torch.from_numpy(chosen)])))
        for each in [*optimizers, *schedulers]:
            each.step()
    return net


def sparse_and_dense(net: nn.Module) -> list[torch.optim.Optimizer]:
    assert isinstance(net, Shared)
    others = [one for name, one in net.named_parameters() if name != "words.weight"]
    return [torch.optim.SparseAdam([net.words.weight], lr=0.03), torch.optim.SGD(others, lr=0.1)]


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any], Any, int]] = {
    "momentum": (Shared, momentum, None, 4),
    "adamw by groups": (Shared, adamw, partial(lr_scheduler.StepLR, step_size=3, gamma=0.3), 4),
    "momentum by schedule": (
        Shared,
        momentum,
        partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=CLOCKS + 1),
        4,
    ),
    "state of one number": (
        Shared,
        partial(lambda net: torch.optim.NAdam(net.parameters(), lr=0.02)),
        None,
        4,
    ),
    "sparse": (partial(Shared, sparse=True, tied=False), sparse_and_dense, None, 4),
    "batch normalization": (Normalized, momentum, None, 1),
    "hook of a whole batch": (clipped_by_hook, momentum, None, 1),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyTorch's own SparseAdam
@pytest.mark.parametrize("case", CASES)
def test_the_result_is_that_of_plain_pytorch(case: str) -> None:
    module, optimizer, schedule, parts = CASES[case]
    given = trainer(module, optimizer, schedule=schedule, parts=parts)
    model = reference.run(given, CLOCKS, seed=4, partitions=3)
    expected = plain(given, int(model[SEED][0, 0])).state_dict()
    found = given.state_dict(model)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.allclose(found[name].double(), values.double(), rtol=1e-5, atol=1e-5), name


def test_evictions_change_no_bit_and_lose_no_state() -> None:
    given = trainer(partial(Normalized, dropout=0.3), adamw, microbatch=2)
    undisturbed, disturbed = (
        agileml.train(
            given, engine="sim", clocks=CLOCKS, deterministic=True, partitions=4, chaos=chaos
        )
        for chaos in (None, FAULTS)
    )
    assert (disturbed.evictions, disturbed.failures) == (1, 1)
    assert model_digest(disturbed.model) == model_digest(undisturbed.model)
    assert disturbed.loss == undisturbed.loss
    other = agileml.train(
        replace(given, batch_size=48), engine="sim", clocks=CLOCKS, deterministic=True, partitions=4
    )
    assert model_digest(other.model) != model_digest(undisturbed.model)


def unhurried(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Leaves time to inject the faults, also where the loop that does so waits for a processor."""
    time.sleep(0.1 if net.training else 0.0)
    return objective(net, batch)


def test_processes_that_are_killed_change_no_bit() -> None:
    given = trainer(partial(Normalized, dropout=0.3), adamw)
    undisturbed = agileml.train(
        given, engine="sim", clocks=CLOCKS, deterministic=True, partitions=4
    )
    slow = replace(given, objective=unhurried)
    disturbed = agileml.train(
        slow, engine="local", clocks=CLOCKS, deterministic=True, partitions=4, chaos=FAULTS
    )
    assert (disturbed.evictions, disturbed.failures) == (1, 1)
    assert model_digest(disturbed.model) == model_digest(undisturbed.model)


def test_training_continues_from_a_state_dict(tmp_path: Path) -> None:
    given = trainer(Shared, momentum)
    state = given.state_dict(reference.run(given, 3, seed=1))
    loaded = Shared()
    loaded.load_state_dict(state)
    torch.save(state, tmp_path / "net.pt")
    for source in (state, tmp_path / "net.pt"):
        again = trainer(Shared, momentum, state=source)
        first = again.state_dict(reference.run(again, 0, seed=77))
        assert all(torch.equal(values, first[name]) for name, values in loaded.state_dict().items())
    as_object = trainer(loaded, momentum)
    kept = as_object.state_dict(reference.run(as_object, 0, seed=5))
    assert torch.equal(kept["frozen.weight"], state["frozen.weight"])
    with pytest.raises(
        AgileMLError, match=r"TorchModule: state: Error.* for Normalized: Missing key"
    ):
        reference.run(trainer(Normalized, momentum, state=state), 0, seed=1)


def test_a_job_that_starts_again_begins_with_the_same_weights() -> None:
    given = trainer(Normalized, momentum)
    first, trained, again = (
        model_digest(reference.run(given, clocks, seed=1)) for clocks in (0, 3, 0)
    )
    assert first == again != trained


# -- what is refused, and how errors read ----------------------------------------------------------


class Replacing(Shared):
    """Replaces a parameter while it trains."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.first = nn.Linear(4, 6, bias=False)
        return super().forward(numbers, words)


class Growing(Shared):
    """Changes the shape of a parameter, in use or while it trains."""

    def __init__(self, training: bool) -> None:
        super().__init__()
        self.when = training

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        if self.training is self.when:
            self.unused.data = torch.ones(4)
        return super().forward(numbers, words) + self.unused.sum()


class Widening(Shared):
    """Changes the type of a parameter."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.scale.data = self.scale.data.double()
        return super().forward(numbers, words).float()


class Counting(Shared):
    """Changes a buffer that is not a running statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(numbers, words)


class Failing(torch.utils.data.Dataset[Any]):
    """Has one sample that cannot be read."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401
        if number == 13:
            raise OSError("the disk is broken")
        return data()[number]


class Ragged(Failing):
    """Has one sample of another shape."""

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401
        numbers, *others = data()[number]
        return [numbers[:3] if number == 13 else numbers, *others]


class Empty(torch.utils.data.IterableDataset[Any]):
    """Has no samples at all."""

    def __iter__(self) -> Any:  # noqa: ANN401
        return iter(())


def exploding(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return objective(net, batch) / 0 * 0


def exploding_in_training(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return objective(net, batch) * (float("nan") if net.training else 1)


def steep(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Its derivative is infinite."""
    assert isinstance(net, Shared)
    return objective(net, batch) + (net.scale - net.scale).abs().sqrt()


def unreduced(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(net(batch[0], batch[1]), batch[2], reduction="none")


def mismatched(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return objective(net, [batch[0][:, :3], *batch[1:]])


HERE = r"test_trainer\.py, line \d+, in "
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"loss": exploding},
        rf"TorchModule, clock 0, loss, parameter 'scale': the loss is nan; lower .*{HERE}exploding",
    ),
    (
        {"loss": exploding_in_training},
        rf"clock 1, shard \d, parameter 'scale': the loss is nan; lower .*{HERE}exploding_in_training",
    ),
    (
        {"loss": steep},
        rf"clock 1, parameter 'scale': the update holds NaN or infinity; .*{HERE}steep",
    ),
    (
        {"loss": unreduced},
        rf"clock 0, loss: the objective returned a tensor of shape \(22,\); .*{HERE}unreduced",
    ),
    (
        {"loss": mismatched},
        r"clock 0, loss, layer 'first' with parameter weight \(6, 4\), bias \(6,\): RuntimeError: mat1 and mat2"
        r" shapes cannot be multiplied .*nets\.py, line \d+, in forward",
    ),
    (
        {"module": Replacing},
        r"clock 0, loss, parameter 'first.weight': the module replaced it \(float32 of shape \(6, 4\) .*; .*"
        rf"{HERE}forward",
    ),
    *(
        (
            {"module": partial(Growing, training)},
            rf"{when}, parameter 'unused': the module replaced it \(float32 of shape \(3,\) became float32 of shape"
            rf" \(4,\)\); .*{HERE}forward",
        )
        for training, when in ((False, "clock 0, loss"), (True, r"clock 1, shard \d"))
    ),
    (
        {"module": Widening},
        r"clock 0, loss, parameter 'scale': the module replaced it \(float32 of shape \(\) became float64 of",
    ),
    (
        {"module": Counting},
        rf"clock 1, shard \d, buffer 'calls': the module changed it; .*{HERE}forward",
    ),
    (
        {"dataset": Failing},
        rf"clock \d, (loss|shard \d): sample 13 of the dataset: OSError: the disk .*{HERE}__getitem__",
    ),
    (
        {"dataset": Ragged},
        r"clock \d, (loss|shard \d): samples \d+ to \d+ do not make a batch: RuntimeError: stack expects each tensor",
    ),
    ({"dataset": Empty}, "part 0 of 4 has no sample in the stream of Empty"),
    (
        {"optimizer": lambda net: torch.optim.LBFGS(net.parameters())},
        r"optimizer LBFGS cannot be run by a server: TypeError: .*closure",
    ),
    (
        {"optimizer": lambda net: torch.optim.Adafactor(net.parameters())},
        "optimizer Adafactor: its update of a row depends on other rows",
    ),
    (
        {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau},
        "schedule ReduceLROnPlateau depends on losses, which servers do not know",
    ),
    (
        {
            "module": partial(Shared, sparse=True),
            "optimizer": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
        },
        "parameter 'words.weight': the embedding has sparse=True, but its weight is used "
        "elsewhere, too",
    ),
    (
        {"module": lambda: Shared().half()},
        "parameter 'unused' holds torch.float16; train in float32",
    ),
    ({"module": lambda: nn.LazyLinear(3)}, "parameter 'weight' has no shape yet"),
    ({"parts": 5}, "batch_size is 24 and parts is 5; batch_size must be a multiple of parts"),
    ({"microbatch": -1}, "microbatch is -1; it must be a whole number of at least 0"),
    ({"batch_size": 100, "parts": 100}, r"parts is 100; the dataset has only 88 samples"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_trained_is_named_in_one_line(number: int) -> None:
    options, problem = REFUSED[number]
    with pytest.raises(AgileMLError, match=problem) as raised:
        reference.run(trainer(**options), CLOCKS, seed=1)
    assert "\n" not in str(raised.value)


def test_without_pytorch_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AgileMLError, match=r"pip install 'spotctl\[torch\]'"):
        trainer()
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "net.py").write_text("import torch\n")
    with pytest.raises(
        TrainerFailed, match=r"net\.py, line 1, in <module>\) \(needs PyTorch: pip install"
    ):
        TrainerSource(str(tmp_path / "net.py")).load()
