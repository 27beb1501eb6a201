"""`python -m tests.agileml.torch.constructs`: things that real networks and loops do, in plain PyTorch and ours.

Each trains for nine clocks with plain PyTorch, a loop as anyone writes it over whole batches, and with a `TorchModule`
in parts. The table has the largest difference of a weight, relative to the largest weight, what the check at the start
of a job says, and the answer for what is refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, WeightedRandomSampler

from agileml import reference
from agileml.errors import AgileMLError
from agileml.torch import TorchModule
from agileml.torch.data import Batches
from agileml.torch.trainer import SEED
from tests.agileml.torch.nets import (
    BATCH,
    SAMPLES,
    Line,
    Normalized,
    Shared,
    Shares,
    adamw,
    clipped_by_hook,
    data,
    momentum,
    objective,
    trainer,
)

CLOCKS = 9


def summed(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """The sum over the samples instead of their mean."""
    return objective(net, batch) * len(batch[0])


def lowered(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """In bfloat16 where that is precise enough, as GPUs compute."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        numbers, words, targets = batch
        scores = net(numbers, words)
    return nn.functional.cross_entropy(scores.float(), targets)


def halved(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """In float16, in which small gradients become 0."""
    with torch.autocast("cpu", dtype=torch.float16):
        numbers, words, targets = batch
        scores = net(numbers, words)
    return nn.functional.cross_entropy(scores.float(), targets)


def scaled(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """As a loop passes it to `backward`."""
    loss: torch.Tensor = torch.amp.GradScaler("cpu").scale(objective(net, batch))
    return loss


def weighted() -> DataLoader[Any]:
    """Draws some samples more often than others."""
    return DataLoader(data(), BATCH, sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES))


class Resumable(Shares):
    """Each pass has the same samples."""

    leaves_out = False


class Counting(Shared):
    """Counts its steps in a buffer, as moving averages of one's own do."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(numbers, words)


class Owning(Counting):
    """Says that the first part of each batch moves the buffer."""

    owned_buffers = ("steps",)


@dataclass(frozen=True)
class TorchConstruct:
    """One of them, and the parts of its batches."""

    name: str
    module: Callable[[], nn.Module] = Shared
    optimizer: Callable[[nn.Module], Any] = momentum
    schedule: Any = None
    loss: Callable[[nn.Module, Any], torch.Tensor] = objective
    dataset: Any = data
    parts: int = 4
    microbatch: int = 0
    clip_norm: float | None = None
    workers: int = 0
    loss_scale: float = 1.0

    def trainer(self) -> TorchModule:
        options = {"schedule": self.schedule, "parts": self.parts, "microbatch": self.microbatch}
        options |= {"clip_norm": self.clip_norm, "workers": self.workers, "loss_scale": self.loss_scale}
        return trainer(self.module, self.optimizer, self.dataset, self.loss, **options)


CYCLE = partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=CLOCKS + 1)
CONSTRUCTS = [
    TorchConstruct("tied and frozen weights, momentum"),
    TorchConstruct("AdamW by groups, StepLR", optimizer=adamw, schedule=partial(lr_scheduler.StepLR, step_size=3)),
    TorchConstruct("OneCycleLR", schedule=CYCLE),
    TorchConstruct("gradients added up over microbatches", microbatch=2),
    TorchConstruct("clipping by the norm", clip_norm=0.1),
    TorchConstruct("clipping by the norm, AdamW", optimizer=adamw, clip_norm=0.1),
    TorchConstruct("bfloat16 by autocast", loss=lowered),
    TorchConstruct("float16 by autocast, with a loss scale", loss=halved, loss_scale=1024.0),
    TorchConstruct("a loss that GradScaler scales", loss=scaled),
    TorchConstruct("DataLoader", dataset=lambda: DataLoader(data(), BATCH, shuffle=True)),
    TorchConstruct(
        "DataLoader with two workers", dataset=lambda: DataLoader(data(), BATCH, shuffle=True, num_workers=2)
    ),
    TorchConstruct("DataLoader with a sampler", dataset=weighted),
    TorchConstruct("batch normalization, in one part", Normalized, parts=1),
    TorchConstruct("batch normalization, in four parts", Normalized),
    TorchConstruct("dropout", partial(Normalized, dropout=0.3), parts=1),
    TorchConstruct("a hook that clips, in one part", clipped_by_hook, parts=1),
    TorchConstruct("a hook that clips, in four parts", clipped_by_hook),
    TorchConstruct("a loss that is a sum", loss=summed),
    TorchConstruct("a buffer that the module changes", Counting),
    TorchConstruct("a buffer that the module declares", Owning),
    TorchConstruct("IterableDataset", dataset=Line),
    TorchConstruct("IterableDataset with a state and shares", dataset=Resumable, microbatch=2),
]


def plain(given: TorchConstruct, seed: int) -> nn.Module:
    """A loop as anyone writes it: one process, whole batches, the same samples."""
    torch.manual_seed(seed)
    net = given.module()
    optimizer = given.optimizer(net)
    scheduler = given.schedule(optimizer) if given.schedule else None
    samples, order = data(), Batches(SAMPLES, BATCH, 1, shuffle=True)
    stream = np.arange(CLOCKS * BATCH).reshape(CLOCKS, BATCH) % SAMPLES
    for clock in range(1, CLOCKS + 1):
        low = (clock - 1) % order.per_epoch * BATCH
        chosen = order.chosen(seed, clock, 0, low, low + order.length(clock))
        if given.dataset in (Line, Resumable):
            chosen = stream[clock - 1]
        optimizer.zero_grad()
        torch.autograd.backward(given.loss(net, list(samples[torch.from_numpy(chosen)])) * given.loss_scale)
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad /= given.loss_scale
        if given.clip_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), given.clip_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return net


def difference(given: TorchConstruct) -> float:
    """The largest difference of a weight, relative to the largest weight."""
    ours = given.trainer()
    model = reference.run(ours, CLOCKS, seed=4)
    expected, found = plain(given, int(model[SEED][0, 0])).state_dict(), ours.state_dict(model)
    apart = max(float((found[name].double() - values.double()).abs().max()) for name, values in expected.items())
    return apart / max(float(values.double().abs().max()) for values in expected.values())


def row(given: TorchConstruct) -> tuple[str, str, str]:
    """The name, the difference after all clocks, and what the check at the start says."""
    try:
        said = given.trainer().check_start(4)
    except AgileMLError as error:
        return given.name, "refused", str(error)
    try:
        return given.name, f"{difference(given):.1e}", said.removeprefix("first clock against plain PyTorch: ")
    except AgileMLError as error:
        return given.name, "refused", str(error)


def main() -> None:
    """Prints the table."""
    warnings.simplefilter("ignore")
    sys.stdout.write("| construct | after nine clocks | check at the start |\n| --- | --- | --- |\n")
    for construct in CONSTRUCTS:
        sys.stdout.write(f"| {' | '.join(row(construct))} |\n")


if __name__ == "__main__":
    main()
