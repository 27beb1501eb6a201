"""`python -m tests.agileml.torch.constructs [ENGINE...]`: things that real networks and loops do,
in plain PyTorch and ours.

Each trains for nine clocks with plain PyTorch, a loop as anyone writes it over whole batches, and
with a `TorchModule` in parts, on one process and on the engines (sim, local), where nodes are
evicted and killed. The table has the largest difference of a weight, relative to the largest
weight, what the check at the start of a job says, and the answer for what is refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, WeightedRandomSampler

import agileml
from agileml import reference
from agileml.errors import AgileMLError
from agileml.params.layout import Params
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


class Annealing(Shared):
    """Its temperature falls with each batch, by a count in an attribute."""

    steps = 0

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(numbers, words) * (1 + 0.2 * self.steps)


class Following(Shared):
    """Has a second network that follows the first one slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Linear(4, 6).requires_grad_(False)

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.slow.weight.mul_(0.9).add_(self.first.weight, alpha=0.1)
        return super().forward(numbers + self.slow(numbers)[:, :4], words)


class Carrying(nn.Module):
    """Begins with the state in which the last batch ended."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 20)
        self.hidden: torch.Tensor | None = None

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del words
        known = self.hidden is not None and len(self.hidden) == len(numbers)
        hidden = self.cell(numbers, self.hidden if known else None)
        self.hidden = hidden.detach()
        scores: torch.Tensor = self.out(hidden)
        return scores


class Routed(Shared):
    """Sends some samples, not in each batch, through another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = nn.Linear(4, 20)

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        scores, chosen = super().forward(numbers, words), numbers[:, :1] > 2.0
        return torch.where(chosen, self.expert(numbers), scores) if chosen.any() else scores


def limited_backwards() -> Shared:
    """A hook of a layer that makes the gradient of a part as long as that of a batch."""
    module = Shared()
    module.out.register_full_backward_hook(
        lambda _, inputs, __: (inputs[0] / (inputs[0].norm() + 1e-9),)  # type: ignore[index]
    )
    return module


def parametrized() -> nn.Module:
    module = Shared()
    nn.utils.parametrizations.weight_norm(module.first)
    return module


def compiled() -> nn.Module:
    return cast("nn.Module", torch.compile(Shared(), backend="eager"))


def averaged() -> nn.Module:
    return torch.optim.swa_utils.AveragedModel(Shared())


def class_weighted(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    numbers, words, targets = batch
    return nn.functional.cross_entropy(
        net(numbers, words), targets, weight=torch.linspace(0.1, 3.0, 20)
    )


def left_out(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """The mean over samples whose number depends on the batch."""
    numbers, words, targets = batch
    targets = torch.where(numbers[:, 0] > 0.7, -100, targets)
    return nn.functional.cross_entropy(net(numbers, words), targets, ignore_index=-100)


def contrastive(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    scores = nn.functional.normalize(net(batch[0], batch[1]), dim=1)
    return -(scores @ scores.T * 5).log_softmax(1).diag().mean()


def penalized(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """With the square of the gradient with respect to the inputs."""
    numbers = batch[0].clone().requires_grad_()
    scores = net(numbers, batch[1])
    (slope,) = torch.autograd.grad(scores.sum(), numbers, create_graph=True)
    return nn.functional.cross_entropy(scores, batch[2]) + 0.01 * slope.square().sum(1).mean()


CALLS = [0]


def warming(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """By a count of its own."""
    CALLS[0] += 1
    return objective(net, batch) * min(1.0, CALLS[0] / 20)


def warming_by_clock(net: nn.Module, batch: list[torch.Tensor], clock: int = 1) -> torch.Tensor:
    return objective(net, batch) * min(1.0, clock / 5)


class Signed(torch.optim.Optimizer):
    """Steps by the sign of a moving mean."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:  # noqa: ANN401 - as PyTorch's
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ANN401
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                    mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
                    self.change(parameter, mean, group["lr"])

    def change(self, parameter: torch.Tensor, mean: torch.Tensor, rate: float) -> None:
        parameter.add_(mean.sign(), alpha=-rate)


class Normed(Signed):
    """Steps as far as the parameter is long."""

    def change(self, parameter: torch.Tensor, mean: torch.Tensor, rate: float) -> None:
        parameter.add_(mean * (parameter.norm() / (mean.norm() + 1e-6)), alpha=-rate)


class Centered(Signed):
    """Takes the mean of a column away."""

    def change(self, parameter: torch.Tensor, mean: torch.Tensor, rate: float) -> None:
        parameter.add_(mean - mean.mean(0, keepdim=True) if mean.ndim > 1 else mean, alpha=-rate)


class Counted(Signed):
    """Counts in an attribute."""

    steps = 0

    def change(self, parameter: torch.Tensor, mean: torch.Tensor, rate: float) -> None:
        self.steps += 1
        parameter.add_(mean, alpha=-rate * min(1.0, self.steps / 40))


def stepped(kind: type[Signed], net: nn.Module) -> torch.optim.Optimizer:
    return kind(net.parameters())


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
        options |= {
            "clip_norm": self.clip_norm,
            "workers": self.workers,
            "loss_scale": self.loss_scale,
        }
        return trainer(self.module, self.optimizer, self.dataset, self.loss, **options)


CYCLE = partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=CLOCKS + 1)
CONSTRUCTS = [
    TorchConstruct("tied and frozen weights, momentum"),
    TorchConstruct(
        "AdamW by groups, StepLR",
        optimizer=adamw,
        schedule=partial(lr_scheduler.StepLR, step_size=3),
    ),
    TorchConstruct("OneCycleLR", schedule=CYCLE),
    TorchConstruct("gradients added up over microbatches", microbatch=2),
    TorchConstruct("clipping by the norm", clip_norm=0.1),
    TorchConstruct("clipping by the norm, AdamW", optimizer=adamw, clip_norm=0.1),
    TorchConstruct("bfloat16 by autocast", loss=lowered),
    TorchConstruct("float16 by autocast, with a loss scale", loss=halved, loss_scale=1024.0),
    TorchConstruct("a loss that GradScaler scales", loss=scaled),
    TorchConstruct("DataLoader", dataset=lambda: DataLoader(data(), BATCH, shuffle=True)),
    TorchConstruct(
        "DataLoader with two workers",
        dataset=lambda: DataLoader(data(), BATCH, shuffle=True, num_workers=2),
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
    TorchConstruct("a count in an attribute of the module", Annealing),
    TorchConstruct("a network that follows another", Following),
    TorchConstruct("a hidden state from batch to batch", Carrying),
    TorchConstruct("a layer that some batches do not use, AdamW", Routed, optimizer=adamw),
    TorchConstruct("hooks on layers, in four parts", limited_backwards),
    TorchConstruct("weight_norm", parametrized),
    TorchConstruct("torch.compile", compiled),
    TorchConstruct("AveragedModel", averaged),
    TorchConstruct("class weights", loss=class_weighted),
    TorchConstruct("samples left out of the mean (ignore_index)", loss=left_out),
    TorchConstruct("a contrastive loss", loss=contrastive),
    TorchConstruct("a gradient penalty", loss=penalized),
    TorchConstruct("a warm-up by a count of the objective", loss=warming),
    TorchConstruct("a warm-up by the clock", loss=warming_by_clock),
    TorchConstruct("an optimizer of one's own", optimizer=partial(stepped, Signed)),
    TorchConstruct("an optimizer with norms of parameters", optimizer=partial(stepped, Normed)),
    TorchConstruct("an optimizer with means of columns", optimizer=partial(stepped, Centered)),
    TorchConstruct("an optimizer that counts in an attribute", optimizer=partial(stepped, Counted)),
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
        named = {"clock": clock} if given.loss is warming_by_clock else {}
        loss = given.loss(net, list(samples[torch.from_numpy(chosen)]), **named)
        torch.autograd.backward(loss * given.loss_scale)
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad /= given.loss_scale
        if given.clip_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), given.clip_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return net


FAULTS = "at clock 3 evict 1 warn 1s; at clock 5 kill 1; at clock 6 join 1"


def difference(given: TorchConstruct, engine: str = "") -> float:
    """The largest difference of a weight, relative to the largest weight, on one process or an
    engine with faults.
    """
    ours = given.trainer()
    model = reference.run(ours, CLOCKS, seed=4) if not engine else trained(ours, engine)
    expected, found = plain(given, int(model[SEED][0, 0])).state_dict(), ours.state_dict(model)
    apart = max(
        float((found[name].double() - values.double()).abs().max())
        for name, values in expected.items()
    )
    return apart / max(float(values.double().abs().max()) for values in expected.values())


def trained(trainer: TorchModule, engine: str) -> Params:
    """The model of a job whose nodes are evicted and killed."""
    given: Any = {"clocks": CLOCKS, "seed": 4, "deterministic": True, "output": lambda _: None}
    return agileml.train(trainer, "1+3", engine, chaos=FAULTS, **given).model


def row(given: TorchConstruct, engines: Sequence[str]) -> list[str]:
    """The name, the difference after all clocks on each engine, and what the check at the start
    says.
    """
    cells, said = [given.name], ""
    for engine in ("", *engines):
        try:
            said = said or given.trainer().check_start(4).removeprefix(
                "first clock against plain PyTorch: "
            )
            cells.append(f"{difference(given, engine):.1e}")
        except AgileMLError as error:
            said = str(error)
            cells.append("refused")
    return [*cells, said]


def main() -> None:
    """Prints the table."""
    warnings.simplefilter("ignore")
    engines = sys.argv[1:] or ["sim", "local"]
    heads = ["construct", "one process", *engines, "check at the start"]
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n")
    for construct in CONSTRUCTS:
        sys.stdout.write(f"| {' | '.join(row(construct, engines))} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
