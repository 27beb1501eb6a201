"""The trainer of a user's own loop: a `TorchModule` whose gradients are computed by iterations of
that loop.

The order of samples, the sum of the parts, the optimizer and the first comparison with plain
PyTorch are those of `TorchModule`. What it adds is a row for each part of the batch, with the state
that the loop declares.
"""

from __future__ import annotations

import copy
import io
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.overrides import _get_current_function_mode_stack

from agileml.errors import BadTrainer, NotFinite
from agileml.params.layout import Array, Params
from agileml.torch.data import BatchPart
from agileml.torch.elastic import CURE, Computed, Elastic, LoopThread, Work
from agileml.torch.loop_state import OptimizerCopies, content_of, restore
from agileml.torch.network import TorchNetwork, check_hooks, check_module, sparse_names
from agileml.torch.orders import surroundings
from agileml.torch.row_optimizers import RowOptimizers
from agileml.torch.trainer import MAX_SEEDS, SEED, TorchModule
from agileml.trainer import ParamReader, ParamView, Sample, init_rng, random_generator

STATE = "(state)"
"""The array of a model with a row for each part: the loss of its last batch, and the declared state
that it left."""

_HEAD = 3
"""Numbers of a row before the bytes of the state: their count, and the loss."""

_MIN_STATE_BYTES = 4096
"""Room for the state of a part, at least; there is room for four times as many bytes as it takes at
first."""


def run_to_loop(function: Callable[[], object], arguments: Sequence[str] | None = None) -> object:
    """Calls a function that may come to a loop over an `Elastic`: returns the trainer of that, or
    the function's value.

    `arguments` are those of the program, if the function runs one.
    """
    loop = LoopThread(function)
    program = sys.argv
    if arguments is not None:
        sys.argv = list(arguments)
    try:
        # All nodes must come to the loop with the same module.
        with surroundings(0, 0):
            value = loop.start()
    finally:
        sys.argv = program

    if loop.elastic is None:
        return value
    return _trainer_of(loop.elastic, loop)


def _trainer_of(elastic: Elastic, loop: LoopThread) -> LoopTrainer:
    """The trainer of a loop that has begun. BadTrainer if its work cannot be divided."""
    model = elastic.model
    name = "Elastic"
    for scheduler in elastic.schedulers:
        if isinstance(scheduler, ReduceLROnPlateau):
            raise BadTrainer(
                f"{name}: ReduceLROnPlateau depends on losses, which servers do not know; use "
                "another"
            )

    if elastic.optimizer.state:
        raise BadTrainer(
            f"{name}: the optimizer has taken steps before the loop; begin with a new one"
        )

    if elastic.settings["parts"] > 1:
        check_hooks(model)
    copies = OptimizerCopies(elastic.optimizer, elastic.schedulers)
    device = next(check_module(model).parameters()).device
    trainer = LoopTrainer(
        model,
        objective=cast("Any", _Iteration(loop, elastic, copies)),
        optimizer=copies,
        schedule=cast("Any", copies.schedule) if elastic.schedulers else None,
        device=str(device),
        name=name,
        # It is at hand.
        loss_every=1,
        **elastic.settings,
    )

    if not trainer._optimizers.trained:
        raise BadTrainer(
            f"{name}: the optimizer has no parameter of the model that requires a gradient"
        )

    trainer.start.update(TorchNetwork(model, trainer._optimizers.trained, str(device)).arrays())
    weakref.finalize(trainer, loop.end).atexit = False
    return trainer


class _Iteration:
    """The objective of a `LoopTrainer`: an iteration of its loop, for the part and from the state
    that `begin` gave.
    """

    def __init__(self, loop: LoopThread, elastic: Elastic, copies: OptimizerCopies) -> None:
        self._loop = loop
        self._copies = copies
        self._names = [name for name, _ in elastic.model.named_parameters()]
        self.first = content_of("Elastic, before the first step", elastic.declared)
        """The state before the first step."""
        self.declared = elastic.declared
        self.computed: Computed | None = None
        """The result of the last iteration, if there was one since `begin`."""
        self.begin()

        # For messages that name the line of the user's code.
        vars(self)["__wrapped__"] = SimpleNamespace(__code__=elastic.code)

    def begin(self, part: int = 0, state: bytes | None = None, *, twice: bool = False) -> None:
        """The next iteration is computed for this part, from a state; with `twice`, again, which
        must give the same.
        """
        self._part = part
        self._state = self.first if state is None else state
        self._twice = twice
        self.computed = None

    def __call__(self, module: torch.nn.Module, batch: object, clock: int) -> torch.Tensor:
        """A loss with the gradients of the iteration."""
        if self._twice:
            with _undone(module), redirect_stdout(io.StringIO()):
                earlier = self._compute(copy.deepcopy(batch), clock)

        self.computed = self._compute(batch, clock)
        if self._twice:
            self.check_same(earlier, clock)
        loss = torch.tensor(self.computed.loss, dtype=torch.float64)
        given: torch.Tensor = _Given.apply(loss, self.computed.gradients, *module.parameters())  # type: ignore[no-untyped-call]

        return given

    def finish(self, state: bytes) -> None:
        """Leaves the loop, with this state."""
        restore("Elastic, after the last step", self.declared, state)
        self._loop.finish()

    def check_same(self, earlier: Computed, clock: int) -> None:
        """BadTrainer unless the last iteration has led to the same as an earlier one of this clock
        and part.
        """
        later = self.computed
        where = f"Elastic, step {clock - 1}"
        assert later is not None
        if earlier.variables is not None and later.variables is not None:
            changed = later.variables.unlike(earlier.variables)
            if changed:
                raise BadTrainer(
                    f"{where}: {changed[0]} changes each time that the iteration is computed, so "
                    f"that a node that takes over has another one: {CURE}"
                )

        pairs = zip(self._names, earlier.gradients, later.gradients, strict=True)
        other = [
            f"the gradient of {name!r}"
            for name, before, after in pairs
            if not _equal(before, after)
        ]

        if (earlier.loss, earlier.state) != (later.loss, later.state):
            other.append("the loss or the state")
        if other:
            raise BadTrainer(
                f"{where}: {other[0]} is another one when the iteration is computed again, so it "
                f"depends on something that the loop has changed: {CURE}"
            )

    def _compute(self, batch: object, clock: int) -> Computed:
        rates = self._copies.rates(clock), self._copies.rates(clock + 1)
        modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        work = Work(clock, self._part, batch, self._state, rates, modes, self._twice)
        return self._loop.compute(work)


class _Given(torch.autograd.Function):
    """A loss whose gradients are known."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        loss: torch.Tensor,
        gradients: Sequence[torch.Tensor | None],
        *_: torch.Tensor,
    ) -> Any:  # noqa: ANN401
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # noqa: ANN401
        return None, None, *ctx.gradients


@contextmanager
def _undone(module: torch.nn.Module) -> Iterator[None]:
    """Leaves a module's buffers and the random numbers as they were."""
    before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    chance = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cards = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    yield
    for buffer, values in before:
        buffer.detach().copy_(values)
    random.setstate(chance[0])
    np.random.set_state(chance[1])
    torch.set_rng_state(chance[2])
    if cards:
        torch.cuda.set_rng_state_all(cards)


def _equal(earlier: torch.Tensor | None, later: torch.Tensor | None) -> bool:
    """Whether gradients are equal, on a graphics card but for the order of sums."""
    if earlier is None or later is None:
        return earlier is later
    earlier = earlier.to_dense()
    later = later.to_dense()
    if earlier.is_cuda:
        return torch.allclose(earlier, later, rtol=1e-4, atol=1e-6)
    return torch.equal(earlier, later)


@dataclass(frozen=True, eq=False)
class LoopTrainer(TorchModule):
    """Trains the module of a running script with the gradients of its loop."""

    _takes_clock = True

    @cached_property
    def start(self) -> Params:
        """The values that travel, as the loop found them."""
        return {}

    @property
    def _iteration(self) -> _Iteration:
        return cast("Any", self.objective)  # type: ignore[no-any-return]

    def first_arrays(self, seed: int) -> Params:
        """The state of each part, and the values that the loop began with."""
        del seed
        first = self._iteration.first
        room = max(_MIN_STATE_BYTES, 4 * len(first)) if first else 0
        row = _row(np.zeros(_HEAD + -(-room // 4), np.int32), 0.0, first)
        return {
            STATE: np.tile(row, (self.parts, 1)),
            **{name: values.copy() for name, values in self.start.items()},
        }

    def step(
        self,
        shard: BatchPart,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Has the loop compute a part's share of the batch's gradient."""
        row = params.read(STATE, [shard.number])[0]
        seed = int(params.read(SEED)[0, 0])
        self._iteration.begin(
            shard.number, _state_of(row), twice=clock == _checked_clock(seed, len(str(clock)))
        )
        super().step(shard, lo, hi, params, clock, rng)
        computed = self._iteration.computed
        if computed is not None:
            after = _row(row, computed.loss, computed.state)
            params.update(STATE, [shard.number], (after - row)[None], owned=True)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """The mean loss of the last batch; before the first step, that of the first."""
        seed, clock = params.read(SEED)[0].tolist()
        total = 0.0
        for piece in sample:
            part = piece.shard.number
            if clock:
                total += float(
                    params.read(STATE, [part])[0, 1:_HEAD].copy().view(np.float64)[0]
                ) * len(piece)
            else:
                module = self._load_network(seed, params).module
                self._iteration.begin(part)
                with surroundings(seed, self.threads), redirect_stdout(io.StringIO()):
                    samples = self._data.first(seed, part, *self._data.items(part, 1))
                    batch = self._data.gathered(samples, f"{self.name}, loss")
                    total += self._iteration(module, batch, 1).item() * len(piece)

        loss = total / sum(map(len, sample))
        if not np.isfinite(loss):
            raise NotFinite(
                f"{self.name}: the loss of step {clock - 1} is {loss}; lower the learning rate"
            )

        return loss

    def check_start(self, seed: int) -> str:
        """Has the loop compute steps 0, 1 and a random one twice, and then the first again, which
        must give the same; then compares its gradients with those of whole batches, as
        `TorchModule` does. What it prints is left out."""
        with redirect_stdout(io.StringIO()):
            drawn = int(init_rng(seed).integers(MAX_SEEDS))
            later = []
            if not self.reads_stream:
                later.append(int(random_generator(drawn, (3,)).integers(3, 101)))
            first: Computed | None = None
            for clock in (1, 2, *later, 1):
                module = self.build(drawn)
                batch = self.pieces(drawn, clock)[0][1]
                self._iteration.begin(twice=True)
                with surroundings(drawn, self.threads):
                    self._iteration(module, batch, clock)
                first = first or self._iteration.computed

            assert first is not None
            # Variables that only some steps set may differ, as long as they have no effect.
            computed = Computed(first.gradients, first.loss, first.state, None)
            self._iteration.check_same(computed, 1)
            self._iteration.begin()
            if all(isinstance(each, dict | list) for each in self._iteration.declared):
                return super().check_start(seed)
        return (
            "iterations of the loop can be computed again; its state is that of a part, so batches "
            "are not compared"
        )

    def finish(self, model: Params) -> None:
        """Runs the code after the loop, with the values of a trained model, and the state that the
        first part left.
        """
        self._network(int(model[SEED][0, 0])).assign(model.__getitem__)
        self._iteration.finish(_state_of(model[STATE][0]))

    def build(self, seed: int) -> torch.nn.Module:
        """The module of the script, with the values that the loop began with."""
        del seed
        module = cast("torch.nn.Module", self.module)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, values in self.start.items():
            tensors[name].detach().copy_(torch.from_numpy(values).reshape(tensors[name].shape))
        return module

    @cached_property
    def _optimizers(self) -> RowOptimizers:
        """The optimizers of servers, which run in another thread than the loop, and leave its
        parameters alone.
        """
        module = cast("torch.nn.Module", self.module)
        copies = cast("OptimizerCopies", self.optimizer)
        schedule = None if self.schedule is None else cast("Any", copies.resting_schedule)
        sparse = sparse_names(module)

        if self.clip_norm is not None and sparse:
            raise BadTrainer(
                f"{self.name}: clip_norm needs dense gradients; make {min(sparse)!r} sparse=False"
            )
        return RowOptimizers(module, self.build_optimizers(module), schedule, sparse)


def _row(like: Array, loss: float, state: bytes) -> Array:
    """The row of a part: the loss of its batch, and the state after it."""
    row = np.zeros_like(like)
    words = -(-len(state) // 4)
    if _HEAD + words > len(row):
        raise BadTrainer(
            f"Elastic: the declared state has grown to {len(state):,} bytes, and there is room for"
            f" {4 * (len(row) - _HEAD):,}: four times as many as before the first step"
        )

    row[0] = len(state)
    row[1:_HEAD] = np.array([loss]).view(np.int32)
    row[_HEAD : _HEAD + words] = np.frombuffer(state.ljust(4 * words, b"\0"), np.int32)
    return row


def _state_of(row: Array) -> bytes:
    return row[_HEAD:].tobytes()[: int(row[0])]


@lru_cache(maxsize=8)
def _checked_clock(seed: int, digits: int) -> int:
    """The clock, of all with this many digits, in which iterations are computed twice."""
    first: int = 10 ** (digits - 1)
    return first + int(random_generator(seed, (4, digits)).integers(9 * first))
