"""`TorchModule`: a trainer from a PyTorch module, a dataset, a loss and an optimizer.

A clock is one batch, whose parts are computed by different nodes. Servers sum their gradients and run the optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from math import frexp, isinf
from operator import mul
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from agileml.checks import check_number, check_whole, torch_module
from agileml.errors import BadArgument, BadTrainer, NotFinite
from agileml.params import FULL, WIRES
from agileml.params.declarations import call
from agileml.params.layout import Array, Params
from agileml.torch.data import BatchPart, SampledBatches, TorchData
from agileml.torch.first_clock import compare_first_clock
from agileml.torch.loaders import BatchKey
from agileml.torch.network import BatchObjective, TorchNetwork, check_hooks, check_module, sparse_names
from agileml.torch.row_optimizers import ParameterPart, RowOptimizers
from agileml.torch.surroundings import surroundings
from agileml.trainer import ParamReader, ParamView, Piece, Sample, init_rng
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

MAX_LOSS_BYTES = 256 << 20
"""Samples for the loss that a node keeps: reading them in every clock would take longer than those of a batch."""


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
        total, count = 0.0, 0
        for piece in sample:
            batches = self._sampled(piece, seed, where)
            with surroundings(seed, self.threads):
                losses = network.mean_losses(self.objective, batches.contents, where)
            total += sum(map(mul, losses, batches.lengths))
            count += len(piece)
        return total / count

    def _sampled(self, piece: Piece, seed: int, where: str) -> SampledBatches:
        """The batches of a piece of the loss sample, which is the same in every clock."""
        place = seed, piece.shard.number, piece.lo, piece.hi
        kept = self._loss_batches.get(place)
        if kept is None or kept.changed:
            most = self.microbatch or max(self.batch, LOSS_BATCH)
            with surroundings(seed, self.threads):
                items = self._first_samples(seed, piece.shard.number, piece.lo, piece.hi)
                chosen = [items[first : first + most] for first in range(0, len(items), most)]
                kept = SampledBatches.of([self._fetch_first(some, where) for some in chosen], list(map(len, chosen)))
            if kept.nbytes + sum(batches.nbytes for batches in self._loss_batches.values()) <= MAX_LOSS_BYTES:
                self._loss_batches[place] = kept
        return kept

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
        return compare_first_clock(self, self._optimizers, drawn, self._device)

    def pieces(self, seed: int) -> list[tuple[float, Any]]:
        """The chunks of the first batch, with their weights in it: two, if parts are computed in microbatches."""
        chosen = self._first_pieces(seed)
        total = sum(map(len, chosen))
        return [(len(some) / total, self._fetch_first(some, f"{self.name}, clock 1")) for some in chosen]

    def whole(self, seed: int) -> object:
        """The samples of these chunks as one batch."""
        chosen = self._first_pieces(seed)
        whole = [sample for some in chosen for sample in some]
        together = whole if self._data.stream is not None else np.array(whole)
        return self._fetch_first(together, f"{self.name}, clock 1")

    def _first_samples(self, seed: int, part: int, low: int, high: int) -> Any:  # noqa: ANN401 - numbers, or samples
        """Items low..high of a part, counted from its beginning."""
        if self._data.stream is not None:
            return self._data.stream.first(part, low, high)
        return self._data.batches.chosen(seed, 1, part, low, high)

    def _fetch_first(self, some: Any, where: str) -> object:  # noqa: ANN401
        if self._data.stream is not None:
            return self._data.collated(some, f"{where}: samples of the stream")
        return self._data.fetch(some, where)

    def _first_pieces(self, seed: int) -> list[Any]:
        chunks = [(part, low) for part in range(self.parts) for low in range(0, self.batch, self.chunk)]
        # Microbatches are for batches that do not fit into memory.
        some = chunks[:2] if self.microbatch else chunks
        chosen = (self._first_samples(seed, part, low, min(low + self.chunk, self.batch)) for part, low in some)
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
    def _loss_batches(self) -> dict[tuple[int, ...], SampledBatches]:
        """By seed, part and items."""
        return {}

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
