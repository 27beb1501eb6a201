"""The first clocks of a `TorchModule` against plain PyTorch, on one node and before anything is
rented.

The gradient of the parts of a batch, added up, is compared with that of the batch as a whole; then
one step of the optimizer, as servers run it on rows, with the optimizer's own. They differ where an
objective is no mean over its samples, or where something depends on other samples of the batch or
on how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from agileml.errors import BadTrainer
from agileml.params.commit import clip_factor, shrunk, square_of
from agileml.params.layout import Array
from agileml.torch.network import BatchObjective, TorchNetwork, array_of, on_device
from agileml.torch.orders import surroundings
from agileml.torch.row_optimizers import ParameterPart, RowOptimizers
from agileml.user_code import beginning_of

_DROPOUT = frozenset(
    "dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout alpha_dropout_ feature_dropout "
    "feature_dropout_"
    " feature_alpha_dropout feature_alpha_dropout_".split()
)
_WITH_DROPOUT = frozenset("lstm gru rnn_tanh rnn_relu multi_head_attention_forward".split())
"""Functions whose only argument that is a float is the share that they drop."""
_PRECISE = 20
"""Without 16 bits, results that are equal but for rounding are closer than the tolerance by this
factor."""
_REPEATED = 1e-6
"""Differences of a gradient that is computed twice, as a share of its length, are no rounding."""
_RANDOM = frozenset(
    "rand randn rand_like randn_like normal normal_ uniform_ exponential_ bernoulli bernoulli_ log_normal_".split()
)


class WithoutChance(TorchFunctionMode):
    """Computes as if dropout dropped nothing and random numbers were constants, so that results can
    be compared.

    With `frozen_norms`, batch normalization uses its running statistics, as they are. `lowered` is
    whether anything was computed in 16 bits, and `normalized` and `dropped` whether there were such
    layers.
    """

    def __init__(self, *, frozen_norms: bool) -> None:
        super().__init__()
        self._frozen_norms = frozen_norms
        self.lowered = self.normalized = self.dropped = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        del types
        name = getattr(func, "__name__", "")
        named = dict(kwargs or {})
        if name in _DROPOUT:
            self.dropped = True
            if args:
                return args[0]
            return named["input"]

        if name in _WITH_DROPOUT:
            args = [0.0 if isinstance(argument, float) else argument for argument in args]
        elif name == "scaled_dot_product_attention":
            args = [0.0 if number == 4 else argument for number, argument in enumerate(args)]
            named = {key: 0.0 if key == "dropout_p" else value for key, value in named.items()}
        elif name == "batch_norm" and self._frozen_norms:
            self.normalized = True
            args, named = _frozen(args, named)

        result = func(*args, **named)
        if isinstance(result, torch.Tensor):
            self.lowered = self.lowered or result.dtype in (torch.bfloat16, torch.float16)
            if name in _RANDOM and result.is_floating_point():
                with torch.no_grad():
                    result.detach().fill_(1.0 if name.startswith("bernoulli") else 0.5)

        return result


def _frozen(args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of `batch_norm` that leave the running statistics as they are, or 0 and 1 where
    there are none.
    """
    order = (
        "input",
        "running_mean",
        "running_var",
        "weight",
        "bias",
        "training",
        "momentum",
        "eps",
    )

    given: dict[str, Any] = {**dict(zip(order, args, strict=False)), **named, "training": False}
    channels = given["input"].shape[1]
    for statistic, value in (("running_mean", 0.0), ("running_var", 1.0)):
        if given.get(statistic) is None:
            given[statistic] = torch.full(
                (channels,), value, dtype=torch.float32, device=given["input"].device
            )

    return (), given


def compare_first_clock(
    trainer: Any,  # noqa: ANN401 - a TorchModule, whose module imports this one
    servers: RowOptimizers,
    seed: int,
    device: str,
) -> str:
    """How far the first clocks differ from plain PyTorch, in words: gradient and step, as shares of
    their lengths.

    BadTrainer if one of them differs by more than the trainer's tolerance, or if a result depends
    on anything but weights, batch, clock and random numbers. Rounding is a twentieth of the
    tolerance where nothing has 16 bits.
    """
    compared = _FirstClocks(trainer, servers.trained, seed, device)
    plain = compared.repeated()
    step = _difference_of_step(trainer, servers, compared.module, plain)
    parts = []
    remarks = compared.remarks()

    if not compared.is_random:
        apart, clock = max((compared.difference(clock), clock) for clock in compared.clocks)
        parts.append(f"the gradient differs by {apart:.1e}")
        if not apart <= compared.tolerance:
            raise BadTrainer(
                f"{trainer.name}: the gradient of batch {clock} differs by {apart:.1%} from plain "
                "PyTorch's when its"
                " parts are computed one by one: the objective must return the mean over the "
                "samples of its batch,"
                " and no sample may depend on the others; correct it, or use parts=1, or raise "
                "tolerance"
            )

    if not step <= trainer.tolerance:
        raise BadTrainer(
            f"{trainer.name}: the first step of the optimizer differs by {step:.1%} from plain "
            "PyTorch's; use an"
            " optimizer that treats all numbers of a parameter alike, or raise tolerance"
        )

    parts.append(f"the optimizer's step by {step:.1e}")
    note = f" ({'; '.join(remarks)})" if remarks else ""
    return f"first clock against plain PyTorch: {', '.join(parts)} of its length{note}"


class _FirstClocks:
    """The gradients of clocks 1, 2 and a random one of the first hundred, by plain PyTorch and in
    parts.

    They are computed without dropout, with running statistics as they are, and all from the first
    weights.
    """

    def __init__(
        self,
        trainer: Any,  # noqa: ANN401
        trained: frozenset[str],
        seed: int,
        device: str,
    ) -> None:
        self._trainer = trainer
        self._trained = trained
        self._seed = seed
        self._device = device
        self._calm = WithoutChance(frozen_norms=True)
        self.module = trainer.build(seed).to(device)
        self._start = {
            name: tensor.detach().clone() for name, tensor in _tensors(self.module).items()
        }
        later = [2, int(np.random.Generator(np.random.PCG64(seed)).integers(3, 101))]
        self.clocks = [1, *(later[:1] if trainer.reads_stream else later)]
        self.is_random = False

    @property
    def tolerance(self) -> float:
        tolerance: float = self._trainer.tolerance
        is_rounded = self._calm.lowered or self._device != "cpu"
        return tolerance if is_rounded else tolerance / _PRECISE

    def repeated(self) -> dict[str, Array]:
        """The gradient of the first clock, which stays in the module. BadTrainer if it is another
        the second time.
        """
        attributes = _attributes(self.module)
        first = self._plain(1, self._seed)
        changed = {
            name
            for name, value in _attributes(self.module).items()
            if not _same(value, attributes.get(name))
        }

        counted = [
            name for name in sorted(changed) if isinstance(attributes.get(name), int | float | str)
        ]
        again = self._plain(1, self._seed)
        is_other = _relative_difference(again, first) > (
            _REPEATED if self._device == "cpu" else self.tolerance
        )

        if is_other or counted:
            named = ", ".join(repr(name) for name in counted or sorted(changed))
            holder = f"the module's attribute {named}" if named else "the objective or the module"
            raise BadTrainer(
                f"{self._trainer.name}: {holder} changes when a batch is computed, and other nodes "
                "would not see the"
                " change: use objective(module, batch, clock) for what depends on the clock, or a "
                "buffer that the layer"
                f" names in averaged_buffers or owned_buffers ({beginning_of(self.module.forward)})"
            )

        plain = self._plain(1, self._seed + 1)
        self.is_random = _relative_difference(plain, first) > 0
        return plain

    def difference(self, clock: int) -> float:
        """How far the gradient of a clock's parts, added up as servers do, is from that of the
        batch as a whole.
        """
        trainer = self._trainer
        plain = self._plain(clock, self._seed)
        network = TorchNetwork(
            trainer.build(self._seed), self._trained, self._device, trainer.loss_scale
        )
        shapes = {
            name: parameter.shape or (1,) for name, parameter in network.module.named_parameters()
        }
        sums: dict[str, Array] = {}
        with surroundings(self._seed, trainer.threads):
            pieces = trainer.pieces(self._seed, clock)

        for weight, batch in pieces:
            with surroundings(self._seed, trainer.threads):
                gradients = network.gradients(self._objective(clock), batch, weight, trainer.name)
                for name, rows, values in gradients:
                    if name in self._trained:
                        total = sums.setdefault(name, np.zeros(shapes[name], values.dtype))
                        np.add.at(total, np.arange(len(total)) if rows is None else rows, values)

        return _relative_difference(sums, plain)

    def remarks(self) -> list[str]:
        """The properties that the comparison leaves out."""
        if self.is_random:
            return ["module or objective draw random numbers, so only the step is compared"]
        without = ["without dropout"] if self._calm.dropped else []
        frozen = [
            "batch normalization by running statistics; in training, each part has a mean of its "
            "own"
        ]
        return [*without, *(frozen if self._calm.normalized else [])]

    def _plain(self, clock: int, luck: int) -> dict[str, Array]:
        """The gradient of a batch as a whole, from the first weights; `luck` is the seed of what is
        random.
        """
        trainer = self._trainer
        module = self.module
        for name, tensor in _tensors(module).items():
            tensor.data.copy_(self._start.get(name, tensor))
        for parameter in module.parameters():
            parameter.grad = None
        module.train()
        with surroundings(self._seed, trainer.threads):
            batch = on_device(trainer.whole(self._seed, clock), self._device)

        with surroundings(luck, trainer.threads):
            with _no_scaler(trainer.name):
                loss = self._objective(clock)(module, batch)
            torch.autograd.backward(loss * trainer.loss_scale)

        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad /= trainer.loss_scale

        return {
            name: array_of(parameter.grad.to_dense())
            for name, parameter in module.named_parameters()
            if name in self._trained and parameter.grad is not None
        }

    def _objective(self, clock: int) -> BatchObjective:
        objective: BatchObjective = self._trainer.objective_at(clock)

        @wraps(objective)
        def without_chance(module: torch.nn.Module, batch: object) -> torch.Tensor:
            with self._calm:
                return objective(module, batch)

        return without_chance


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


_OF_ALL_MODULES = {*vars(torch.nn.Module()), "training"}


def _attributes(module: torch.nn.Module) -> dict[str, object]:
    """Attributes of layers that are no parameters, buffers or layers."""
    return {
        f"{path}.{name}" if path else name: len(value)
        if isinstance(value, list | dict | set)
        else value
        for path, layer in module.named_modules()
        for name, value in vars(layer).items()
        if name not in _OF_ALL_MODULES
    }


def _same(value: object, earlier: object) -> bool:
    plain = (int, float, str, bool)
    if isinstance(value, plain) and isinstance(earlier, plain):
        return value == earlier
    return value is earlier


@contextmanager
def _no_scaler(name: str) -> Iterator[None]:
    """Raises BadTrainer where the objective scales its loss: its steps would be those of a far
    larger gradient.
    """

    def scale(*_: object) -> None:
        raise BadTrainer(
            f"{name}: the objective scales its loss (GradScaler), which nothing would undo; return "
            "the loss itself, and use TorchModule's loss_scale=1024"
        )

    scaler: Any = torch.amp.GradScaler
    usual = scaler.scale
    scaler.scale = scale
    try:
        yield
    finally:
        scaler.scale = usual


def _difference_of_step(
    trainer: Any,  # noqa: ANN401
    servers: RowOptimizers,
    module: torch.nn.Module,
    gradients: dict[str, Array],
) -> float:
    """How far the step of the servers is from that of the optimizer, for the same gradient."""
    named = {
        name: parameter for name, parameter in module.named_parameters() if name in servers.trained
    }
    before = {name: array_of(parameter) for name, parameter in named.items()}
    ours = {name: values.copy() for name, values in before.items()}
    factor = clip_factor(sum(map(square_of, gradients.values())), trainer.clip_norm or 0.0)
    if trainer.clip_norm:
        torch.nn.utils.clip_grad_norm_(named.values(), trainer.clip_norm)

    for name, gradient in gradients.items():
        values = ours[name]
        slots = [np.zeros_like(values) for _ in range(servers.slots)]
        slots += [np.zeros(len(values)) for _ in range(servers.row_slots)]
        parameter_part = ParameterPart(
            name, values, shrunk(gradient.astype(values.dtype), factor), slots
        )
        servers.step([parameter_part], 1)

    kept = [parameter.grad for parameter in module.parameters()]
    optimizers = trainer.build_optimizers(module)
    for parameter, earlier in zip(module.parameters(), kept, strict=True):
        # The function that makes the optimizer may set gradients to zero, as a loop does before its
        # first step.
        parameter.grad = earlier

    for optimizer in optimizers:
        if trainer.schedule is not None:
            # Its first step may be at another rate than the optimizer's own.
            trainer.schedule(optimizer)
        optimizer.step()

    moved = {name: array_of(parameter) - before[name] for name, parameter in named.items()}
    return _relative_difference({name: ours[name] - before[name] for name in ours}, moved)


def _relative_difference(ours: dict[str, Array], plain: dict[str, Array]) -> float:
    """The length of the difference as a share of that of the second."""
    names = {*ours, *plain}
    zero = np.zeros(1)
    square = sum(
        float(np.square(ours.get(name, zero) - plain.get(name, zero), dtype=float).sum())
        for name in names
    )
    length = sum(float(np.square(values, dtype=float).sum()) for values in plain.values())
    if length:
        return sqrt(square / length)
    return sqrt(square)
