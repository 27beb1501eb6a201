"""Compares the first clock of a `TorchModule` with plain PyTorch, on one node and before anything is rented.

The gradient is that of the parts of a batch, added up, against that of the batch as a whole; then one step of the
optimizer, as servers run it on rows, against the optimizer's own. They differ where an objective is no mean over its
samples, or where something depends on other samples of the batch or on how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agileml.checks import torch_module
from agileml.errors import BadTrainer
from agileml.params.commit import clip_factor, shrunk, square_of
from agileml.params.layout import Array
from agileml.torch.network import BatchObjective, TorchNetwork, has_running_statistics, on_device
from agileml.torch.row_optimizers import ParameterPart, RowOptimizers
from agileml.torch.surroundings import surroundings

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

Gradients = dict[str, Array]


class ComparedModule(Protocol):
    """The parts of a `TorchModule`, which imports this module, that the comparison needs."""

    @property
    def name(self) -> str: ...

    @property
    def schedule(self) -> Callable[[Optimizer], LRScheduler] | None: ...

    @property
    def objective(self) -> BatchObjective: ...

    @property
    def loss_scale(self) -> float: ...

    @property
    def clip_norm(self) -> float | None: ...

    @property
    def threads(self) -> int: ...

    @property
    def tolerance(self) -> float: ...

    def build(self, seed: int) -> torch.nn.Module: ...

    def build_optimizers(self, module: torch.nn.Module) -> Sequence[Optimizer]: ...

    def pieces(self, seed: int) -> Sequence[tuple[float, object]]:
        """The chunks of the first batch, with their weights in it."""
        ...

    def whole(self, seed: int) -> object:
        """The samples of all these chunks as one batch."""
        ...


def compare_first_clock(trainer: ComparedModule, servers: RowOptimizers, seed: int, device: str) -> str:
    """How far the first clock differs from plain PyTorch, in words: gradient and step, as shares of their lengths.

    BadTrainer if one of them differs by more than the trainer's tolerance.
    """
    module, trained = trainer.build(seed).to(device), servers.trained
    plain = _plain_gradients(trainer, module, trained, seed, device, seed)
    other = _plain_gradients(trainer, trainer.build(seed).to(device), trained, seed, device, seed + 1)
    parts, uncompared = [], "module or data draw random numbers, so only the step is compared"
    if not _relative(other, plain):
        gradient = _relative(_summed(trainer, seed, trained, device), plain)
        parts.append(f"the gradient differs by {gradient:.1e}")
        uncompared = "batch normalization takes the mean of each part by itself" * has_running_statistics(module)
        if not uncompared and not gradient <= trainer.tolerance:
            raise BadTrainer(
                f"{trainer.name}: the gradient of the first batch differs by {gradient:.1%} from plain PyTorch's when"
                " its parts are computed one by one: the objective must return the mean over the samples of its batch,"
                " and no sample may depend on the others; correct it, or use parts=1, or raise tolerance"
            )
    step = _step(trainer, servers, module, plain)
    if not step <= trainer.tolerance:
        raise BadTrainer(
            f"{trainer.name}: the first step of the optimizer differs by {step:.1%} from plain PyTorch's; use an"
            " optimizer that treats all numbers of a parameter alike, or raise tolerance"
        )
    parts.append(f"the optimizer's step by {step:.1e}")
    note = f" ({uncompared})" if uncompared else ""
    return f"first clock against plain PyTorch: {', '.join(parts)} of its length{note}"


def _plain_gradients(
    trainer: ComparedModule, module: torch.nn.Module, trained: frozenset[str], seed: int, device: str, luck: int
) -> Gradients:
    """The gradient of the first batch as a whole, which stays in the module; `luck` is the seed of what is random."""
    module.train()
    with surroundings(luck, trainer.threads):
        batch = on_device(trainer.whole(seed), device)
        with _no_scaler(trainer.name):
            loss = trainer.objective(module, batch)
        torch_module().autograd.backward(loss * trainer.loss_scale)
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad /= trainer.loss_scale
    return {name: _dense(p.grad) for name, p in module.named_parameters() if name in trained and p.grad is not None}


@contextmanager
def _no_scaler(name: str) -> Iterator[None]:
    """Raises BadTrainer where the objective scales its loss: its steps would be those of a far larger gradient."""

    def scale(*_: object) -> None:
        raise BadTrainer(
            f"{name}: the objective scales its loss (GradScaler), which nothing would undo; return the loss itself, and"
            " use TorchModule's loss_scale=1024"
        )

    scaler: Any = torch_module().amp.GradScaler
    usual, scaler.scale = scaler.scale, scale
    try:
        yield
    finally:
        scaler.scale = usual


def _summed(trainer: ComparedModule, seed: int, trained: frozenset[str], device: str) -> Gradients:
    """The gradients of the parts, added up as servers do."""
    network = TorchNetwork(trainer.build(seed), trained, device, trainer.loss_scale)
    shapes = {name: parameter.shape or (1,) for name, parameter in network.module.named_parameters()}
    sums: Gradients = {}
    for weight, batch in trainer.pieces(seed):
        with surroundings(seed, trainer.threads):
            for name, rows, values in network.gradients(trainer.objective, batch, weight, trainer.name):
                if name in trained:
                    total = sums.setdefault(name, np.zeros(shapes[name], values.dtype))
                    np.add.at(total, np.arange(len(total)) if rows is None else rows, values)
    return sums


def _step(trainer: ComparedModule, servers: RowOptimizers, module: torch.nn.Module, gradients: Gradients) -> float:
    """How far the step of the servers is from that of the optimizer, for the same gradient."""
    named = {name: parameter for name, parameter in module.named_parameters() if name in servers.trained}
    before = {name: _array(parameter) for name, parameter in named.items()}
    ours = {name: values.copy() for name, values in before.items()}
    factor = clip_factor(sum(map(square_of, gradients.values())), trainer.clip_norm or 0.0)
    if trainer.clip_norm:
        torch_module().nn.utils.clip_grad_norm_(named.values(), trainer.clip_norm)
    for name, gradient in gradients.items():
        values = ours[name]
        slots = [np.zeros_like(values) for _ in range(servers.slots)]
        slots += [np.zeros(len(values)) for _ in range(servers.row_slots)]
        servers.step([ParameterPart(name, values, shrunk(gradient.astype(values.dtype), factor), slots)], 1)
    for optimizer in trainer.build_optimizers(module):
        if trainer.schedule is not None:
            # Its first step may be at another rate than the optimizer's own.
            trainer.schedule(optimizer)
        optimizer.step()
    moved = {name: _array(parameter) - before[name] for name, parameter in named.items()}
    return _relative({name: ours[name] - before[name] for name in ours}, moved)


def _dense(gradient: torch.Tensor) -> Array:
    values: Array = (gradient.to_dense() if gradient.is_sparse else gradient).detach().cpu().numpy().copy()
    return values.reshape(values.shape or 1)


def _array(parameter: torch.nn.Parameter) -> Array:
    values: Array = parameter.detach().cpu().numpy().copy()
    return values.reshape(values.shape or 1)


def _relative(ours: Gradients, plain: Gradients) -> float:
    """The length of the difference as a share of that of the second."""
    names = {*ours, *plain}
    zero = np.zeros(1)
    square = sum(float(np.square(ours.get(name, zero) - plain.get(name, zero), dtype=float).sum()) for name in names)
    length = sum(float(np.square(values, dtype=float).sum()) for values in plain.values())
    return sqrt(square / length) if length else sqrt(square)
