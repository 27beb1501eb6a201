"""`TorchModule`: a trainer from a PyTorch module, a dataset, a loss and an optimizer.

A clock is one batch, whose parts are computed by different nodes. Servers sum their gradients and
run the optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from inspect import signature
from itertools import count
from math import frexp, isinf
from operator import mul
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from agileml.errors import (
    BadArgument,
    BadTrainer,
    NotFinite,
    check_number,
    check_whole,
    torch_module,
)
from agileml.params import FULL, WIRES
from agileml.params.commit import calling
from agileml.params.layout import Array, Params
from agileml.torch.data import OF_JOB, OF_LOADER, BatchPart, TorchData
from agileml.torch.loaders import BatchKey
from agileml.torch.network import (
    BatchObjective,
    TorchNetwork,
    check_hooks,
    check_module,
    sparse_names,
)
from agileml.torch.orders import surroundings
from agileml.torch.row_optimizers import ParameterPart, RowOptimizers
from agileml.trainer import ParamReader, ParamView, Sample, init_rng
from agileml.user_code import beginning_of

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

SEED = "(seed, clock)"
"""The array of a model that holds the seed of its samples' order and of what does not travel, and
the clock."""

ORDER = "(order)"
"""The array of a model that holds a mark of the order of samples, if that is not drawn for the
seed."""

POSITIONS = "(positions)"
"""The array of a model that holds, for each part, the position in its stream of samples."""

MAX_SEEDS = 2**31

LOSS_BATCH = 64
"""Samples over which the loss is computed at a time, at least: without gradients they take little
memory."""


@dataclass(frozen=True, eq=False)
class TorchModule:
    """Trains `module` on batches of `dataset`, data-parallel through the parameter server.

    `module` and `dataset` are objects, or functions that make them (on every node). A dataset has a
    length and samples by number; a DataLoader stands for its dataset, collate_fn, workers and
    order. With `workers`, that many processes of a node read its batches ahead. Of an
    IterableDataset each part has a stream of its own, as the workers of a DataLoader have. Its
    position is a part of the model: the `state_dict()` of the dataset or its iterator, or else the
    number of samples, which are read again after a move. `objective(module, batch)` returns the
    mean loss over a batch, as a tensor with one number; with a third parameter `clock`, it gets the
    number of the clock, from 1 on. `optimizer(module)` returns an optimizer of `torch.optim` that
    treats all numbers of a parameter alike, or a list of several; `schedule(optimizer)` returns its
    learning-rate schedule, in clocks.

    A clock is one batch of `batch_size` samples, divided into `parts` that are computed on
    different nodes, and within a part `microbatch` samples at a time (0: all). `state`, a
    state_dict or the file of one, replaces the initial weights. `device` is `auto` (a graphics card
    if there is one), `cpu`, or a device of PyTorch. `threads` are those of one node; 0 leaves them
    to PyTorch. Nodes agree bit for bit only on the same device with as many threads. Before a job
    starts, its first batches are compared with plain PyTorch in one process, and the job refused if
    their gradients or the first step differ by more than the share `tolerance` of their lengths, or
    a twentieth of it for gradients where nothing is computed in 16 bits (`inf`: not compared).
    `clip_norm` is the largest norm of the gradient of a batch, over all trained parameters: a
    longer one is scaled, as `torch.nn.utils.clip_grad_norm_` does. The loss is multiplied by
    `loss_scale`, a power of two, and its gradient divided by it again, so that float16 under
    `torch.autocast` keeps small gradients. With `wire` `bf16` or `fp16`, weights and gradients
    travel in 16 bits; the servers' weights and optimizers keep theirs. Samples come in an `order`
    that is drawn for the seed of the job if `shuffle`. With `order="loader"`, it is that of the
    DataLoader, with any sampler, in a loop of one process that begins with the random numbers where
    the function that makes it leaves them; or it is that of a sampler, such as one of
    `torch.utils.data`, without a DataLoader. A sampler's `set_epoch` gets the numbers from
    `first_epoch` on; None: it is not called. The loss over a sample is computed every `loss_every`
    clocks; 0: as often as it takes about a tenth of the time.
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
    order: Iterable[int] | str = OF_JOB
    first_epoch: int | None = 0

    def __post_init__(self) -> None:
        torch_module()
        for setting in ("batch_size", "parts", "microbatch", "threads", "workers", "loss_every"):
            check_whole(
                f"{self.name}: {setting}",
                getattr(self, setting),
                int(setting in {"batch_size", "parts"}),
            )

        check_number(f"{self.name}: tolerance", self.tolerance, 0.0, finite=False)
        if self.clip_norm is not None:
            check_number(f"{self.name}: clip_norm", self.clip_norm, 0.0, above=True)
        check_number(f"{self.name}: loss_scale", self.loss_scale, 0.0, above=True)
        if self.first_epoch is not None:
            check_whole(f"{self.name}: first_epoch", self.first_epoch, 0)

        if frexp(self.loss_scale)[0] != 0.5:
            raise BadArgument(
                f"{self.name}: loss_scale is {self.loss_scale}; it must be a power of two, such as "
                "1024"
            )
        if self.wire not in WIRES:
            raise BadArgument(
                f"{self.name}: wire is {self.wire!r}; choose one of {', '.join(WIRES)}"
            )

        is_named = isinstance(self.order, str)
        if not hasattr(self.order, "__iter__") or (
            is_named and self.order not in (OF_JOB, OF_LOADER)
        ):
            raise BadArgument(
                f"{self.name}: order is {self.order!r}; choose 'job', 'loader' (that of the "
                "DataLoader), or a sampler"
            )
        if self.batch_size % self.parts:
            raise BadArgument(
                f"{self.name}: batch_size is {self.batch_size} and parts is {self.parts}; "
                "batch_size must be a multiple"
                " of parts, because every part computes the same share of a batch"
            )

    def __getstate__(self) -> dict[str, Any]:
        # Without what is computed from them.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    # -- what a trainer declares -------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Samples of a part in a clock."""
        return self.batch_size // self.parts

    @property
    def chunk(self) -> int:
        """Samples that are computed at a time."""
        return self.microbatch or self.batch

    @property
    def is_whole(self) -> bool:
        """Whether a batch is computed at once."""
        return self.chunk >= self.batch_size

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
        streams = {} if self._data.stream is None else {POSITIONS: self._data.stream.positions()}
        orders = None if streams else self._data.batches.orders
        order = {} if orders is None else {ORDER: np.array([[orders.mark]])}
        return {SEED: np.array([[seed, 0]]), **order, **streams, **self.first_arrays(seed)}

    def first_arrays(self, seed: int) -> Params:
        """The values of a module that travel, before the first clock."""
        # Of a new module: the one that is kept may hold trained values by now, if the job starts
        # again from nothing.
        return TorchNetwork(self.build(seed), self._optimizers.trained, "cpu").arrays()

    def shards(self) -> Sequence[BatchPart]:
        if self._data.stream is None:
            return self._data.batches.shards()
        # The items of a part are those of one clock: a batch is always whole, as the stream begins
        # again at its end.
        return [BatchPart(number, self.batch) for number in range(self.parts)]

    def step(
        self,
        shard: BatchPart,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Adds this chunk's share of the batch's gradient."""
        seed = int(params.read(SEED)[0, 0])
        where = f"{self.name}, clock {clock}, shard {shard.number}"
        if self._data.stream is None:
            orders = self._data.batches.orders
            if orders is not None and orders.mark != params.read(ORDER)[0, 0]:
                raise BadTrainer(
                    f"{self.name}: this node has the samples in another order than the first one; "
                    "give the sampler or DataLoader a generator with a seed"
                )
            chosen = self._data.batches.chosen(seed, clock, shard.number, lo, hi)
            if not len(chosen):
                return
            weight = len(chosen) / self._data.batches.length(clock)
            fetch = partial(self._data.fetch, chosen, where)
        else:
            weight = (hi - lo) / self.batch_size
            fetch = partial(self._read_stream, shard.number, lo, hi, params, where)

        network = self._load_network(seed, params)
        owns = shard.number == 0 and lo % self.batch == 0
        drawn = int(rng.integers(2**62))
        batch = (
            self._data.read_ahead(seed, BatchKey(clock, shard.number, lo, hi))
            if self._data.worker_count
            else None
        )

        with surroundings(drawn, self.threads):
            batch = fetch() if batch is None else batch
            for name, rows, values in network.gradients(
                self.objective_at(clock), batch, weight, where, owns=owns
            ):
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

    def apply(
        self, name: str, values: Array, update: Array, slots: Sequence[Array], clock: int
    ) -> None:
        """Runs the optimizer on rows of a parameter."""
        self.apply_all([(name, values, update, slots)], clock)

    def apply_all(
        self, parts: Sequence[tuple[str, Array, Array, Sequence[Array]]], clock: int
    ) -> None:
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
        return self.mean_loss(self._load_network(seed, params), seed, clock, sample)

    def mean_loss(self, network: TorchNetwork, seed: int, clock: int, sample: Sample) -> float:
        """The mean loss of a network after a clock."""
        where = f"{self.name}, clock {clock}, loss"
        most = self.microbatch or max(self.batch, LOSS_BATCH)
        total = 0.0
        count = 0
        for piece in sample:
            batches = self._data.sampled(piece, seed, where, most)
            with surroundings(seed, self.threads):
                losses = network.mean_losses(self.objective_at(clock + 1), batches.contents, where)
            total += sum(map(mul, losses, batches.lengths))
            count += len(piece)

        return total / count

    def state_dict(self, model: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        """The module's state_dict with the values of a trained model, such as
        `agileml.train(...).model`.
        """
        network = self._network(int(model[SEED][0, 0]))
        network.assign(model.__getitem__)
        return network.state_dict()

    def check_start(self, seed: int) -> str:
        """How far the first clock differs from plain PyTorch, in words; BadTrainer if by more than
        the tolerance.
        """
        if isinf(self.tolerance):
            return ""
        from agileml.torch.first_clock import compare_first_clock

        drawn = int(init_rng(seed).integers(MAX_SEEDS))
        return compare_first_clock(self, self._optimizers, drawn, self._device)

    def batch_of(self, clock: int, seed: int = 0, pieces: int = 1) -> list[object]:
        """The batch of a clock of a job with this seed, as a loop in one process would read it, or
        cut into pieces.
        """
        if self._data.stream is not None:
            raise BadTrainer(
                f"{self.name}: a stream has no batches before it is read; use batches(seed)"
            )

        drawn = int(init_rng(seed).integers(MAX_SEEDS))
        numbers = self._data.numbers_of(drawn, clock)
        where = f"{self.name}, clock {clock}"
        with surroundings(drawn, self.threads):
            return [self._data.fetch(some, where) for some in np.array_split(numbers, pieces)]

    def batches(self, seed: int = 0) -> Iterator[object]:
        """The batches of clocks 1, 2, ... of a job with this seed, as a loop in one process would
        read them.
        """
        if self._data.stream is None:
            yield from (self.batch_of(clock, seed)[0] for clock in count(1))
            return

        streams = replace(self._data.stream, _open={})
        rows = streams.positions()
        drawn = int(init_rng(seed).integers(MAX_SEEDS))
        for clock in count(1):
            samples = list[Any]()
            where = f"{self.name}, clock {clock}"
            with surroundings(drawn, self.threads):
                for part in range(self.parts):
                    given, rows[part] = streams.read(part, rows[part], 0, self.batch, where)
                    samples += given
                batch = self._data.collated(samples, f"{where}: samples of the stream")
            yield batch

    def pieces(self, seed: int, clock: int) -> list[tuple[float, Any]]:
        """The chunks of a clock's batch, with their weights in it: two, if parts are computed in
        microbatches.
        """
        chosen = self._chunks_of(seed, clock)
        total = sum(map(len, chosen))
        return [
            (len(some) / total, self._data.gathered(some, f"{self.name}, clock {clock}"))
            for some in chosen
        ]

    def whole(self, seed: int, clock: int) -> object:
        """The samples of these chunks as one batch."""
        whole = [sample for some in self._chunks_of(seed, clock) for sample in some]
        together = whole if self._data.stream is not None else np.array(whole)
        return self._data.gathered(together, f"{self.name}, clock {clock}")

    def _chunks_of(self, seed: int, clock: int) -> list[Any]:
        spans = [(part, *self._data.items(part, clock)) for part in range(self.parts)]
        chunks = [
            (part, low, end) for part, begin, end in spans for low in range(begin, end, self.chunk)
        ]

        # Microbatches are for batches that do not fit into memory.
        some = chunks[:2] if self.microbatch else chunks
        chosen = (
            self._data.first(seed, part, low, min(low + self.chunk, end), clock)
            for part, low, end in some
        )

        return [samples for samples in chosen if len(samples)]

    @property
    def reads_stream(self) -> bool:
        """Whether samples have no numbers."""
        return self._data.stream is not None

    def objective_at(self, clock: int) -> BatchObjective:
        """The objective of a clock."""
        if self._takes_clock:
            return partial(cast("Any", self.objective), clock=clock)
        return self.objective

    @cached_property
    def _takes_clock(self) -> bool:
        try:
            return "clock" in signature(self.objective).parameters
        except (TypeError, ValueError):
            return False

    # -- what is made from the arguments, once in each process -------------------------------------

    def _load_network(self, seed: int, params: ParamReader) -> TorchNetwork:
        """The module with the values of the servers."""
        network = self._network(seed)
        network.assign(params.read)
        return network

    def _network(self, seed: int) -> TorchNetwork:
        if seed not in self._networks:
            self._networks.clear()
            given = self.build(seed), self._optimizers.trained, self._device, self.loss_scale
            self._networks[seed] = TorchNetwork(*given, owns_all=self.is_whole)
        return self._networks[seed]

    @cached_property
    def _networks(self) -> dict[int, TorchNetwork]:
        """At most one, by seed."""
        return {}

    @cached_property
    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        if torch_module().cuda.is_available():
            return "cuda"
        return "cpu"

    def build(self, seed: int) -> torch.nn.Module:
        """A new module with its initial weights."""
        torch = torch_module()
        with surroundings(seed, self.threads):
            if isinstance(self.module, torch.nn.Module):
                # A copy would be without them.
                with calling(self.name):
                    check_hooks(self.module)
                try:
                    made = copy.deepcopy(self.module)
                except Exception as error:
                    raise BadTrainer(
                        f"{self.name}: module {type(self.module).__name__} cannot be copied"
                        f" ({' '.join(str(error).split())}); pass a function that makes it"
                    ) from error
            else:
                with calling(f"{self.name}: module"):
                    made = self.module()

        if not isinstance(made, torch.nn.Module):
            raise BadTrainer(
                f"{self.name}: module made {type(made).__name__}; it must make a torch.nn.Module"
            )

        if self.state is not None:
            try:
                state = self.state
                if isinstance(state, str | PathLike):
                    state = torch.load(state, map_location="cpu", weights_only=True)
                made.load_state_dict(cast("Mapping[str, Any]", state))
            except Exception as error:
                raise BadArgument(f"{self.name}: state: {' '.join(str(error).split())}") from error

        with calling(self.name):
            if not self.is_whole:
                check_hooks(made)
            return check_module(made)

    def build_optimizers(self, module: torch.nn.Module) -> list[Optimizer]:
        """New optimizers of a module."""
        from torch.optim import Optimizer

        given = self.optimizer(module)
        if isinstance(given, Optimizer):
            return [given]
        return list(given)

    @cached_property
    def _optimizers(self) -> RowOptimizers:
        module = self.build(0)
        with calling(f"{self.name}: optimizer"):
            optimizers = RowOptimizers(
                module, self.build_optimizers(module), self.schedule, sparse_names(module)
            )
        if self.clip_norm is not None and (sparse := sparse_names(module) & optimizers.trained):
            raise BadTrainer(
                f"{self.name}: clip_norm needs the norm of {min(sparse)!r}'s gradient, which "
                "PyTorch does not compute for sparse gradients; use sparse=False"
            )
        if not optimizers.trained:
            raise BadTrainer(
                f"{self.name}: the optimizer has no parameter of the module that requires a "
                "gradient"
            )

        return optimizers

    @cached_property
    def _data(self) -> TorchData:
        given = self.dataset, self.collate, self.batch_size, self.parts, self.chunk
        order = None if isinstance(self.order, str) and self.order == OF_JOB else self.order
        return TorchData(
            self.name, *given, self.shuffle, self.workers, self.threads, order, self.first_epoch
        )
