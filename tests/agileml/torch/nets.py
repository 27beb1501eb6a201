"""Small networks and data for the tests of `TorchModule`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset, Subset, TensorDataset, get_worker_info

from agileml.torch import TorchModule

SAMPLES, BATCH = 88, 24


class Shared(nn.Module):
    """Tied weights, a frozen layer, an embedding, two inputs, an unused parameter, and one without
    an axis.
    """

    def __init__(self, sparse: bool = False, tied: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, sparse=sparse)
        self.first = nn.Linear(4, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.out = nn.Linear(6, 20)
        if tied:
            self.out.weight = self.words.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(numbers) + self.words(words)) * self.scale
        scores: torch.Tensor = self.out(self.frozen(hidden) + hidden)
        return scores


def clipped_by_hook() -> Shared:
    """A hook whose result for a batch is not the sum of those for its parts."""
    module = Shared()
    module.scale.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))  # type: ignore[no-untyped-call]
    return module


class Normalized(nn.Module):
    """Batch normalization and dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.ReLU(), nn.Linear(8, 20)
        )

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del words
        scores: torch.Tensor = self.net(numbers)
        return scores


def data() -> TensorDataset:
    drawn = torch.Generator().manual_seed(3)
    words = torch.randint(20, (SAMPLES,), generator=drawn)
    return TensorDataset(torch.randn(SAMPLES, 4, generator=drawn), words, (words * 7 + 3) % 20)


def objective(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    numbers, words, targets = batch
    return nn.functional.cross_entropy(net(numbers, words), targets)


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    """Without weight decay for what has one axis, as is usual."""
    parameters = [one for one in net.parameters() if one.requires_grad]
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.1},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.02)


def momentum(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def trainer(
    module: Callable[[], nn.Module] | nn.Module = Shared,
    optimizer: Callable[[nn.Module], Any] = adamw,
    dataset: Any = data,  # noqa: ANN401 - a dataset, a DataLoader, or a function that makes one
    loss: Callable[[nn.Module, Any], torch.Tensor] = objective,
    **options: Any,  # noqa: ANN401
) -> TorchModule:
    return TorchModule(
        module,
        dataset,
        loss,
        optimizer,
        **{"batch_size": BATCH, "parts": 4, "threads": 1, **options},
    )


PARTS = 16
"""As many as a schedule of random faults expects."""


def slow(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """So that a fault can strike before the next clocks are done, however fast the computer."""
    time.sleep(0.002)
    return objective(net, batch)


def mixed(
    wire: str = "fp32", loss: Callable[[nn.Module, Any], torch.Tensor] = objective
) -> TorchModule:
    """Two chunks for each of the parts, except in the last batch of an epoch."""
    return trainer(
        Shared, adamw, loss=loss, batch_size=2 * PARTS, parts=PARTS, microbatch=1, wire=wire
    )


def normalized(
    wire: str = "fp32", loss: Callable[[nn.Module, Any], torch.Tensor] = objective
) -> TorchModule:
    """With dropout, and with statistics in addition to parameters."""
    given: dict[str, Any] = {"batch_size": 2 * PARTS, "parts": PARTS, "wire": wire}
    return trainer(
        partial(Normalized, dropout=0.3), momentum, lambda: Subset(data(), range(64)), loss, **given
    )


class Shares(IterableDataset[Any]):
    """The samples, divided among the parts; each pass over them leaves out another one. Continues
    from a state.
    """

    leaves_out = True

    def __init__(self) -> None:
        self.at = self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        share: Any = get_worker_info()
        samples = data()
        for at in range(self.at, len(samples) // share.num_workers):
            self.at = at + 1
            if not (self.leaves_out and at == self.epoch % 3):
                yield samples[share.id + at * share.num_workers]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Line(IterableDataset[Any]):
    """One sample after the other, for all parts, without a state."""

    def __iter__(self) -> Iterator[Any]:
        return iter(data())


def streamed(wire: str = "fp32", dataset: Callable[[], Any] = Shares) -> TorchModule:
    """Two chunks for each of the parts, whose samples have no numbers."""
    return trainer(
        Shared, adamw, dataset, batch_size=2 * PARTS, parts=PARTS, microbatch=1, wire=wire
    )


def lined(wire: str = "fp32") -> TorchModule:
    """Samples that the dataset does not divide among the parts."""
    return streamed(wire, Line)


def paced(model: str, wire: str) -> TorchModule:
    """One of these by name, slowly."""
    return {"mixed": mixed, "normalized": normalized}[model](wire, slow)


class Visits(nn.Module):
    """One number for each sample, which every visit lowers by 1."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.zeros(SAMPLES + 8))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.left[samples].mean()


def visits(wire: str = "fp32") -> TorchModule:
    """The batches of an epoch are of one size, which is the learning rate."""
    size = 2 * PARTS
    samples = TensorDataset(torch.arange(SAMPLES + 8))

    def visited(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        seen: torch.Tensor = net(*batch)
        return seen

    def once(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=size)

    return TorchModule(
        Visits, samples, visited, once, batch_size=size, parts=PARTS, microbatch=1, wire=wire
    )
