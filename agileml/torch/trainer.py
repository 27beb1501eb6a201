"""`TorchModule`: a trainer from a PyTorch module, a dataset, a loss and an optimizer.

A clock is one batch, whose parts are computed by different nodes. Servers sum their gradients and run the optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from math import frexp, isinf, sqrt
from operator import mul
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from agileml.checks import check_number, check_whole, torch_module
from agileml.errors import BadArgument, BadTrainer, NotFinite
from agileml.params import FULL, WIRES
from agileml.params.commit import clip_factor, shrunk, square_of
from agileml.params.declarations import call
from agileml.params.layout import Array, Params
from agileml.torch.data import BatchPart, TorchData
from agileml.torch.loaders import BatchKey
from agileml.torch.network import (
    BatchObjective,
    TorchNetwork,
    array_of,
    check_hooks,
    check_module,
    has_running_statistics,
    on_device,
    sparse_names,
)
from agileml.torch.row_optimizers import ParameterPart, RowOptimizers
from agileml.torch.surroundings import surroundings
from agileml.trainer import ParamReader, ParamView, Sample, init_rng
from agileml.user_code import beginning_of

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

SEED = "(seed, clock)"
"""The array of a model that holds the seed of its samples' order and of what does not travel, and the clock."""

POSITIONS = "(positions)"
"""The array of a model that holds, for each part, the position in its stream of samples."""

MAX_SEEDS = 2**31

LOSS_BATCH = 64
"""Samples over which the loss is computed at a time, at least: without gradients they take little memory."""


@dataclass(frozen=True, eq=False)
class TorchModule:
    """Trains `module` on batches of `dataset`, data-parallel through the parameter server.

    `module` and `dataset` are objects, or functions that make them (on every node). A dataset has a length and samples
    by number; a DataLoader stands for its dataset, collate_fn, workers and order. With `workers`, that many processes
    of a node read its batches ahead. Of an IterableDataset each part has a stream of its own, as the workers of a
    DataLoader have. Its position is a part of the model: the `state_dict()` of the dataset or its iterator, or else the
    number of samples, which are read again after a move. `objective(module, batch)` returns the mean loss over a batch,
    as a tensor with one number.
    `optimizer(module)` returns an optimizer of `torch.optim` that treats all numbers of a parameter alike, or a list of
    several; `schedule(optimizer)` returns its learning-rate schedule, in clocks.

    A clock is one batch of `batch_size` samples, divided into `parts` that are computed on different nodes, and within
    a part `microbatch` samples at a time (0: all). `state`, a state_dict or the file of one, replaces the initial
    weights. `device` is `auto` (a graphics card if there is one), `cpu`, or a device of PyTorch. `threads` are
    those of one node; 0 leaves them to PyTorch. Nodes agree bit for bit only on the same device with as many threads.
    Before a job starts, its first batch is compared with plain PyTorch in one process, and the job refused if gradient
    or step differ by more than the share `tolerance` of their lengths (`inf`: not compared).
    `clip_norm` is the largest norm of the gradient of a batch, over all trained parameters: a longer one is scaled, as
    `torch.nn.utils.clip_grad_norm_` does. The loss is multiplied by `loss_scale`, a power of two, and its gradient
    divided by it again, so that float16 under `torch.autocast` keeps small gradients. With `wire` `bf16` or `fp16`,
    weights and gradients travel in 16 bits; the servers' weights and optimizers keep theirs.
    The loss over a sample is computed every `loss_every` clocks; 0: as often as it takes about a tenth of the time.
    """

    module: Callable[[], torch.nn.Module] | torch.nn.Module
    dataset: Any
    objective: BatchObjective
    optimizer: Callable[[torch.nn.Module], Optimizer | Sequence[Optimizer]]
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    batch_size: int = 64
    parts: int = 8
    microbatch: int = 0
    shuffle: bool = True
    collate: Callable[[list[Any]], Any] | None = None
    state: Mapping[str, torch.Tensor] | PathLike[str] | str | None = None
    device: str = "auto"
    threads: int = 1
    name: str = "TorchModule"
    wire: str = FULL
    tolerance: float = 0.02
    clip_norm: float | None = None
    workers: int = 0
    loss_scale: float = 1.0
    loss_every: int = 0

    def __post_init__(self) -> None:
        torch_module()
        for setting in ("batch_size", "parts", "microbatch", "threads", "workers", "loss_every"):
            check_whole(f"{self.name}: {setting}", getattr(self, setting), int(setting in {"batch_size", "parts"}))
        check_number(f"{self.name}: tolerance", self.tolerance, 0.0, finite=False)
        if self.clip_norm is not None:
            check_number(f"{self.name}: clip_norm", self.clip_norm, 0.0, above=True)
        check_number(f"{self.name}: loss_scale", self.loss_scale, 0.0, above=True)
        if frexp(self.loss_scale)[0] != 0.5:
            raise BadArgument(f"{self.name}: loss_scale is {self.loss_scale}; it must be a power of two, such as 1024")
        if self.wire not in WIRES:
            raise BadArgument(f"{self.name}: wire is {self.wire!r}; choose one of {', '.join(WIRES)}")
        if self.batch_size % self.parts:
            raise BadArgument(
                f"{self.name}: batch_size is {self.batch_size} and parts is {self.parts}; batch_size must be a multiple"
                " of parts, because every part computes the same share of a batch"
            )

    def __getstate__(self) -> dict[str, Any]:
        # Without what is computed from them.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    # -- what a trainer declares -------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Samples of a part in a clock."""
        return self.batch_size // self.parts

    @property
    def chunk(self) -> int:
        """Samples that are computed at a time."""
        return self.microbatch or self.batch

    @property
    def slots(self) -> int:
        """The optimizer's state arrays."""
        return self._optimizers.slots

    @property
    def row_slots(self) -> int:
        """The optimizer's state numbers."""
        return self._optimizers.row_slots

    def init(self, rng: np.random.Generator) -> Params:
        """The module's trained parameters, its running statistics, and the seed."""
        seed = int(rng.integers(MAX_SEEDS))
        # Of a new module: the one that is kept may hold trained values by now, if the job starts again from nothing.
        module = TorchNetwork(self.build(seed), self._optimizers.trained, "cpu")
        streams = {} if self._data.stream is None else {POSITIONS: self._data.stream.positions()}
        return {SEED: np.array([[seed, 0]]), **streams, **module.arrays()}

    def shards(self) -> Sequence[BatchPart]:
        if self._data.stream is None:
            return self._data.batches.shards()
        # The items of a part are those of one clock: a batch is always whole, as the stream begins again at its end.
        return [BatchPart(number, self.batch) for number in range(self.parts)]

    def step(self, shard: BatchPart, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator) -> None:
        """Adds this chunk's share of the batch's gradient."""
        seed = int(params.read(SEED)[0, 0])
        where = f"{self.name}, clock {clock}, shard {shard.number}"
        if self._data.stream is None:
            chosen = self._data.batches.chosen(seed, clock, shard.number, lo, hi)
            if not len(chosen):
                return
            weight = len(chosen) / self._data.batches.length(clock)
            fetch = partial(self._data.fetch, chosen, where)
        else:
            weight = (hi - lo) / self.batch_size
            fetch = partial(self._read_stream, shard.number, lo, hi, params, where)
        network, owns = self._load_network(seed, params), shard.number == 0 and lo % self.batch == 0
        drawn = int(rng.integers(2**62))
        batch = self._data.read_ahead(seed, BatchKey(clock, shard.number, lo, hi)) if self._data.worker_count else None
        with surroundings(drawn, self.threads):
            batch = fetch() if batch is None else batch
            for name, rows, values in network.gradients(self.objective, batch, weight, where, owns=owns):
                try:
                    params.update(name, rows, values, owned=True)
                except NotFinite as error:
                    raise NotFinite(f"{error} ({beginning_of(self.objective)})") from error

    def _read_stream(self, part: int, lo: int, hi: int, params: ParamView, where: str) -> object:
        """The next samples of a part; after the last ones of the clock, its position moves."""
        assert self._data.stream is not None
        row = params.read(POSITIONS, [part])[0]
        samples, after = self._data.stream.read(part, row, lo, hi, where)
        if hi == self.batch:
            params.update(POSITIONS, [part], (after - row)[None])
        return self._data.collated(samples, f"{where}: samples of the stream")

    def apply(self, name: str, values: Array, update: Array, slots: Sequence[Array], clock: int) -> None:
        """Runs the optimizer on rows of a parameter."""
        self.apply_all([(name, values, update, slots)], clock)

    def apply_all(self, parts: Sequence[tuple[str, Array, Array, Sequence[Array]]], clock: int) -> None:
        """Runs the optimizer on rows of parameters."""
        trained = []
        for name, values, update, slots in parts:
            if name in self._optimizers.trained:
                trained.append(ParameterPart(name, values, update, slots))
            elif name == SEED:
                values[:, 1] = clock
            else:
                np.add(values, update, out=values)
        self._optimizers.step(trained, clock)

    def is_clipped(self, name: str) -> bool:
        """Whether a parameter is one of those whose gradients have the norm that is clipped."""
        return name in self._optimizers.trained

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean loss, without dropout and with running statistics."""
        seed, clock = params.read(SEED)[0].tolist()
        where = f"{self.name}, clock {clock}, loss"
        network = self._load_network(seed, params)
        most = self.microbatch or max(self.batch, LOSS_BATCH)
        total, count = 0.0, 0
        for piece in sample:
            batches = self._data.sampled(piece, seed, where, most)
            with surroundings(seed, self.threads):
                losses = network.mean_losses(self.objective, batches.contents, where)
            total += sum(map(mul, losses, batches.lengths))
            count += len(piece)
        return total / count

    def state_dict(self, model: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        """The module's state_dict with the values of a trained model, such as `agileml.train(...).model`."""
        network = self._network(int(model[SEED][0, 0]))
        network.assign(lambda name: model[name])
        return network.state_dict()

    def check_start(self, seed: int) -> str:
        """How far the first clock differs from plain PyTorch, in words; BadTrainer if by more than the tolerance."""
        if isinf(self.tolerance):
            return ""
        drawn = int(init_rng(seed).integers(MAX_SEEDS))
        return _compare_first_clock(self, self._optimizers, drawn, self._device)

    def pieces(self, seed: int) -> list[tuple[float, Any]]:
        """The chunks of the first batch, with their weights in it: two, if parts are computed in microbatches."""
        chosen = self._first_pieces(seed)
        total = sum(map(len, chosen))
        return [(len(some) / total, self._data.gathered(some, f"{self.name}, clock 1")) for some in chosen]

    def whole(self, seed: int) -> object:
        """The samples of these chunks as one batch."""
        chosen = self._first_pieces(seed)
        whole = [sample for some in chosen for sample in some]
        together = whole if self._data.stream is not None else np.array(whole)
        return self._data.gathered(together, f"{self.name}, clock 1")

    def _first_pieces(self, seed: int) -> list[Any]:
        chunks = [(part, low) for part in range(self.parts) for low in range(0, self.batch, self.chunk)]
        # Microbatches are for batches that do not fit into memory.
        some = chunks[:2] if self.microbatch else chunks
        chosen = (self._data.first(seed, part, low, min(low + self.chunk, self.batch)) for part, low in some)
        return [samples for samples in chosen if len(samples)]

    # -- what is made from the arguments, once in each process -------------------------------------------------------

    def _load_network(self, seed: int, params: ParamReader) -> TorchNetwork:
        """The module with the values of the servers."""
        network = self._network(seed)
        network.assign(params.read)
        return network

    def _network(self, seed: int) -> TorchNetwork:
        if seed not in self._networks:
            self._networks.clear()
            trained = self._optimizers.trained
            self._networks[seed] = TorchNetwork(self.build(seed), trained, self._device, self.loss_scale)
        return self._networks[seed]

    @cached_property
    def _networks(self) -> dict[int, TorchNetwork]:
        """At most one, by seed."""
        return {}

    @cached_property
    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if torch_module().cuda.is_available() else "cpu"

    def build(self, seed: int) -> torch.nn.Module:
        """A new module with its initial weights."""
        torch = torch_module()
        with surroundings(seed, self.threads):
            if isinstance(self.module, torch.nn.Module):
                # A copy would be without them.
                call(self.name, partial(check_hooks, self.module))
                try:
                    made = copy.deepcopy(self.module)
                except Exception as error:
                    raise BadTrainer(
                        f"{self.name}: module {type(self.module).__name__} cannot be copied"
                        f" ({' '.join(str(error).split())}); pass a function that makes it"
                    ) from error
            else:
                made = call(f"{self.name}: module", self.module)
        if not isinstance(made, torch.nn.Module):
            raise BadTrainer(f"{self.name}: module made {type(made).__name__}; it must make a torch.nn.Module")
        if self.state is not None:
            try:
                state = self.state
                if isinstance(state, str | PathLike):
                    state = torch.load(state, map_location="cpu", weights_only=True)
                made.load_state_dict(cast("Mapping[str, Any]", state))
            except Exception as error:
                raise BadArgument(f"{self.name}: state: {' '.join(str(error).split())}") from error
        if self.chunk < self.batch_size:
            call(self.name, partial(check_hooks, made))
        return call(self.name, partial(check_module, made))

    def build_optimizers(self, module: torch.nn.Module) -> list[Optimizer]:
        """New optimizers of a module."""
        from torch.optim import Optimizer

        given = self.optimizer(module)
        return [given] if isinstance(given, Optimizer) else list(given)

    @cached_property
    def _optimizers(self) -> RowOptimizers:
        module = self.build(0)

        def made() -> RowOptimizers:
            return RowOptimizers(module, self.build_optimizers(module), self.schedule, sparse_names(module))

        optimizers = call(f"{self.name}: optimizer", made)
        if self.clip_norm is not None and (sparse := sparse_names(module) & optimizers.trained):
            raise BadTrainer(
                f"{self.name}: clip_norm needs the norm of {min(sparse)!r}'s gradient, which PyTorch does not compute"
                " for sparse gradients; use sparse=False"
            )
        if not optimizers.trained:
            raise BadTrainer(f"{self.name}: the optimizer has no parameter of the module that requires a gradient")
        return optimizers

    @cached_property
    def _data(self) -> TorchData:
        given = self.dataset, self.collate, self.batch_size, self.parts, self.chunk
        return TorchData(self.name, *given, self.shuffle, self.workers, self.threads)


# -- the first clock against plain PyTorch, on one node and before anything is rented ----------------------------------
#
# The gradient is that of the parts of a batch, added up, against that of the batch as a whole; then one step of the
# optimizer, as servers run it on rows, against the optimizer's own. They differ where an objective is no mean over its
# samples, or where something depends on other samples of the batch or on how often it runs.


def _compare_first_clock(trainer: TorchModule, servers: RowOptimizers, seed: int, device: str) -> str:
    """How far the first clock differs from plain PyTorch, in words: gradient and step, as shares of their lengths.

    BadTrainer if one of them differs by more than the trainer's tolerance.
    """
    module, trained = trainer.build(seed).to(device), servers.trained
    plain = _plain_gradients(trainer, module, trained, seed, device, seed)
    other = _plain_gradients(trainer, trainer.build(seed).to(device), trained, seed, device, seed + 1)
    parts, uncompared = [], "module or data draw random numbers, so only the step is compared"
    if not _relative_difference(other, plain):
        gradient = _relative_difference(_gradients_of_parts(trainer, seed, trained, device), plain)
        parts.append(f"the gradient differs by {gradient:.1e}")
        uncompared = "batch normalization takes the mean of each part by itself" * has_running_statistics(module)
        if not uncompared and not gradient <= trainer.tolerance:
            raise BadTrainer(
                f"{trainer.name}: the gradient of the first batch differs by {gradient:.1%} from plain PyTorch's when"
                " its parts are computed one by one: the objective must return the mean over the samples of its batch,"
                " and no sample may depend on the others; correct it, or use parts=1, or raise tolerance"
            )
    step = _difference_of_step(trainer, servers, module, plain)
    if not step <= trainer.tolerance:
        raise BadTrainer(
            f"{trainer.name}: the first step of the optimizer differs by {step:.1%} from plain PyTorch's; use an"
            " optimizer that treats all numbers of a parameter alike, or raise tolerance"
        )
    parts.append(f"the optimizer's step by {step:.1e}")
    note = f" ({uncompared})" if uncompared else ""
    return f"first clock against plain PyTorch: {', '.join(parts)} of its length{note}"


def _plain_gradients(
    trainer: TorchModule, module: torch.nn.Module, trained: frozenset[str], seed: int, device: str, luck: int
) -> dict[str, Array]:
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
    return {
        name: array_of(p.grad.to_dense())
        for name, p in module.named_parameters()
        if name in trained and p.grad is not None
    }


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


def _gradients_of_parts(trainer: TorchModule, seed: int, trained: frozenset[str], device: str) -> dict[str, Array]:
    """The gradients of the parts, added up as servers do."""
    network = TorchNetwork(trainer.build(seed), trained, device, trainer.loss_scale)
    shapes = {name: parameter.shape or (1,) for name, parameter in network.module.named_parameters()}
    sums: dict[str, Array] = {}
    for weight, batch in trainer.pieces(seed):
        with surroundings(seed, trainer.threads):
            for name, rows, values in network.gradients(trainer.objective, batch, weight, trainer.name):
                if name in trained:
                    total = sums.setdefault(name, np.zeros(shapes[name], values.dtype))
                    np.add.at(total, np.arange(len(total)) if rows is None else rows, values)
    return sums


def _difference_of_step(
    trainer: TorchModule, servers: RowOptimizers, module: torch.nn.Module, gradients: dict[str, Array]
) -> float:
    """How far the step of the servers is from that of the optimizer, for the same gradient."""
    named = {name: parameter for name, parameter in module.named_parameters() if name in servers.trained}
    before = {name: array_of(parameter) for name, parameter in named.items()}
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
    moved = {name: array_of(parameter) - before[name] for name, parameter in named.items()}
    return _relative_difference({name: ours[name] - before[name] for name in ours}, moved)


def _relative_difference(ours: dict[str, Array], plain: dict[str, Array]) -> float:
    """The length of the difference as a share of that of the second."""
    names = {*ours, *plain}
    zero = np.zeros(1)
    square = sum(float(np.square(ours.get(name, zero) - plain.get(name, zero), dtype=float).sum()) for name in names)
    length = sum(float(np.square(values, dtype=float).sum()) for values in plain.values())
    return sqrt(square / length) if length else sqrt(square)
