"""The data of a `TorchModule`: its dataset, the samples of each batch, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from inspect import isclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from agileml.errors import BadArgument, BadTrainer, TrainerFailed, torch_module
from agileml.params.commit import calling
from agileml.torch.loaders import BatchKey, Loaders, Streams
from agileml.torch.orders import EpochOrders, Numbers, RandomState, surroundings
from agileml.trainer import Piece
from agileml.user_code import described
from agileml.work import WorkPlan

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

MAX_LOSS_BYTES = 256 << 20
"""Samples for the loss that a node keeps: reading them in every clock would take longer than those
of a batch."""

OF_JOB, OF_LOADER = "job", "loader"
"""The order of samples that is drawn for the seed of the job, and that of a DataLoader in one
process."""


@dataclass(frozen=True, eq=False)
class TorchData:
    """Reads the batches of a `TorchModule`. `dataset` may be a function that makes it, or a
    DataLoader.
    """

    name: str
    dataset: Any
    collate: Callable[[list[Any]], Any] | None
    batch_size: int
    parts: int
    chunk: int
    shuffle: bool
    workers: int
    threads: int
    order: Any = None
    """`OF_LOADER` or a sampler; None: drawn for the seed of the job."""
    first_epoch: int | None = 0
    _loaders: dict[int, Loaders] = field(default_factory=dict, init=False)
    """At most one, by seed."""
    _last_read: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    """By part and chunk, the clock whose batch was read last."""
    _loss_batches: dict[tuple[int, ...], SampledBatches] = field(default_factory=dict, init=False)
    """By seed, part and items."""

    @cached_property
    def _made(self) -> tuple[Any, RandomState]:
        """The dataset or DataLoader, and the state in which the function that makes it leaves the
        random generators.
        """
        with surroundings(0, self.threads):
            return self._make(), RandomState.now()

    def _make(self) -> Any:  # noqa: ANN401 - a dataset or a DataLoader
        data = torch_module().utils.data
        given = self.dataset
        if isinstance(given, data.DataLoader | data.IterableDataset):
            return given

        by_number = hasattr(given, "__getitem__") or hasattr(given, "__getitems__")
        if by_number and not isclass(given):
            return given
        if not callable(given):
            raise BadArgument(
                f"{self.name}: dataset is {type(given).__name__}; pass a dataset or a function"
            )

        with calling(f"{self.name}: dataset"):
            return given()

    @property
    def _given_data(self) -> Any:  # noqa: ANN401 - a dataset or a DataLoader
        return self._made[0]

    @cached_property
    def _loader(self) -> DataLoader[Any] | None:
        """The DataLoader that stands for its dataset, if there is one; BadTrainer if it does what
        nodes cannot.
        """
        data = torch_module().utils.data
        if not isinstance(self._given_data, data.DataLoader):
            return None

        loader: DataLoader[Any] = self._given_data
        is_stream = isinstance(loader.dataset, data.IterableDataset)
        usual = type(loader.sampler) in (data.SequentialSampler, data.RandomSampler)
        makes_batches = loader.batch_size is None and loader.batch_sampler is not None
        usual = usual and not makes_batches

        if not (is_stream or usual or self.order is not None):
            kind = type(loader.batch_sampler if makes_batches else loader.sampler)
            raise BadTrainer(
                f"{self.name}: the DataLoader has a sampler of its own ({kind.__name__}); pass "
                "order='loader' to train in its order, or use shuffle=True or False"
            )
        if loader.batch_size != self.batch_size and not makes_batches:
            raise BadArgument(
                f"{self.name}: batch_size is {self.batch_size}, but the DataLoader has "
                f"{loader.batch_size}"
            )

        return loader

    @cached_property
    def _samples(self) -> Any:  # noqa: ANN401 - what the user's dataset is
        dataset = self._given_data if self._loader is None else self._loader.dataset
        by_number = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
        if not (by_number and hasattr(dataset, "__len__")):
            raise BadTrainer(
                f"{self.name}: dataset {type(dataset).__name__} has no length or no samples by "
                "number, which are needed"
                " to continue on another node; use a map-style dataset, with __len__ and "
                "__getitem__, or an IterableDataset"
            )

        return dataset

    @cached_property
    def _collate(self) -> Callable[[list[Any]], Any]:
        default: Callable[[list[Any]], Any] = torch_module().utils.data.default_collate
        return self.collate or (default if self._loader is None else self._loader.collate_fn)

    @cached_property
    def stream(self) -> Streams | None:
        """The streams of the parts, if samples have no numbers."""
        dataset: Any = self._given_data if self._loader is None else self._loader.dataset
        is_stream = isinstance(dataset, torch_module().utils.data.IterableDataset)
        if is_stream and self.order is not None:
            raise BadArgument(
                f"{self.name}: order is for samples with numbers; a stream has the order of its "
                "dataset"
            )
        if is_stream:
            return Streams(self.name, dataset, self.parts)
        return None

    @cached_property
    def batches(self) -> Batches:
        with calling(f"{self.name}: len() of the dataset"):
            samples = len(self._samples)
        if samples < self.parts:
            raise BadArgument(
                f"{self.name}: parts is {self.parts}; the dataset has only {samples} samples"
            )
        if self.order is not None:
            # The order of the DataLoader, or of a sampler.
            loader = self._loader
            if not isinstance(self.order, str):
                if loader is not None:
                    raise BadArgument(
                        f"{self.name}: order is a sampler, and the DataLoader has one; use "
                        "order='loader'"
                    )
                loader = torch_module().utils.data.DataLoader(
                    self._samples, self.batch_size, sampler=self.order
                )

            if loader is None:
                kind = type(self._samples).__name__
                raise BadArgument(
                    f"{self.name}: order is 'loader', but dataset is {kind}; pass a DataLoader"
                )

            orders = EpochOrders(
                self.name, loader, self._made[1], self.batch_size, samples, self.first_epoch
            )
            return Batches(
                orders.samples, self.batch_size, self.parts, shuffle=False, orders=orders
            )

        if self._loader is None:
            return Batches(samples, self.batch_size, self.parts, self.shuffle)

        if self._loader.drop_last and samples < self.batch_size:
            raise BadArgument(
                f"{self.name}: the DataLoader drops its only batch, which has {samples} samples"
            )

        shuffle = isinstance(self._loader.sampler, torch_module().utils.data.RandomSampler)
        return Batches(samples, self.batch_size, self.parts, shuffle, self._loader.drop_last)

    # Numbers, or samples.
    def first(self, seed: int, part: int, low: int, high: int, clock: int = 1) -> Any:  # noqa: ANN401
        """Items low..high of a part, counted from its beginning, or from that of the epoch of a
        clock.
        """
        if self.stream is not None:
            return self.stream.first(part, low, high)
        return self.batches.chosen(seed, clock, part, low, high)

    def items(self, part: int, clock: int) -> tuple[int, int]:
        """The items of a part in a clock."""
        if self.stream is not None:
            share = self.batch_size // self.parts
            return (clock - 1) * share, clock * share
        return self._plan.items(part, clock)

    def numbers_of(self, seed: int, clock: int) -> Numbers:
        """The samples of the batch of a clock, part by part."""
        parts = range(self.parts)
        chosen = [
            self.batches.chosen(seed, clock, part, *self._plan.items(part, clock)) for part in parts
        ]
        numbers: Numbers = np.concatenate(chosen)
        return numbers

    def gathered(self, some: Any, where: str) -> object:  # noqa: ANN401
        """The batch of what `first` has returned."""
        if self.stream is not None:
            return self.collated(some, f"{where}: samples of the stream")
        return self.fetch(some, where)

    def sampled(self, piece: Piece, seed: int, where: str, most: int) -> SampledBatches:
        """The batches of a piece of the loss sample, the same in every clock; `most` is their
        largest length.
        """
        place = seed, piece.shard.number, piece.lo, piece.hi
        kept = self._loss_batches.get(place)
        if kept is None or kept.changed:
            with surroundings(seed, self.threads):
                items = self.first(seed, piece.shard.number, piece.lo, piece.hi)
                chosen = [items[first : first + most] for first in range(0, len(items), most)]
                kept = SampledBatches.of(
                    [self.gathered(some, where) for some in chosen], list(map(len, chosen))
                )
            if (
                kept.nbytes + sum(batches.nbytes for batches in self._loss_batches.values())
                <= MAX_LOSS_BYTES
            ):
                self._loss_batches[place] = kept

        return kept

    def fetch(self, numbers: Numbers, where: str) -> object:
        loaded = torch_module()
        is_default = self._collate is loaded.utils.data.default_collate
        if is_default and type(self._samples) is loaded.utils.data.TensorDataset:
            # A batch can be taken of each tensor at a time. It is the same as that of its samples
            # one by one, if the numbers of a sample lie in their usual order.
            tensors: Sequence[torch.Tensor] = self._samples.tensors
            plain = all(
                tensor.is_contiguous()
                and tensor.layout == loaded.strided
                and not tensor.requires_grad
                for tensor in tensors
            )
            if tensors and plain:
                chosen = loaded.from_numpy(numbers)
                return [tensor[chosen] for tensor in tensors]
        samples = self._fetch_samples(numbers.tolist(), where)
        return self.collated(samples, f"{where}: samples {numbers[0]} to {numbers[-1]}")

    # What the user's dataset makes.
    def collated(self, samples: Any, which: str) -> object:  # noqa: ANN401
        """The batch of samples."""
        try:
            return self._collate(samples)
        except Exception as error:
            raise TrainerFailed(
                f"{which} do not make a batch: {' '.join(described(error).split())}"
            ) from error

    def _fetch_samples(self, numbers: list[int], where: str) -> Any:  # noqa: ANN401
        """As a DataLoader fetches them: all at once, and whatever that is, from a dataset that
        offers it.
        """
        together = getattr(self._samples, "__getitems__", None)
        try:
            if together is not None:
                return together(numbers)
        except Exception as error:
            if len(numbers) == 1:
                raise _unreadable(numbers[0], where, error) from error
            for number in numbers:
                self._fetch_samples([number], where)
            text = " ".join(described(error).split())
            raise TrainerFailed(
                f"{where}: samples {numbers[0]} to {numbers[-1]} of the dataset: {text}"
            ) from error

        samples = []
        for number in numbers:
            try:
                samples.append(self._samples[number])
            except Exception as error:
                raise _unreadable(number, where, error) from error

        return samples

    # -- reading ahead -----------------------------------------------------------------------------

    @cached_property
    def worker_count(self) -> int:
        if self.stream is not None:
            # Only the process that computes knows the position from which to read.
            return 0
        return self.workers or (0 if self._loader is None else self._loader.num_workers)

    @cached_property
    def _plan(self) -> WorkPlan:
        return WorkPlan(
            tuple(map(len, self.batches.shards())), self.batch_size // self.parts, self.chunk
        )

    def read_ahead(self, seed: int, key: BatchKey) -> object:
        """The batch of a chunk; if this node had the same chunk of the last clock, that of the next
        is read, too.
        """
        if seed not in self._loaders:
            self._loaders.clear()
            self._loaders[seed] = Loaders(self.worker_count, partial(self._read_batch, seed))

        chunk = (key.low - self._plan.items(key.part, key.clock)[0]) // self.chunk
        again = self._last_read.get((key.part, chunk)) == key.clock - 1
        self._last_read[key.part, chunk] = key.clock
        following = []

        if again and chunk < self._plan.chunks(key.part, key.clock + 1):
            batch_key = BatchKey(
                key.clock + 1, key.part, *self._plan.bounds(key.part, key.clock + 1, chunk)
            )
            following = [batch_key]

        return self._loaders[seed].take(
            key, [other for other in following if len(self.batches.chosen(seed, *other))]
        )

    def _read_batch(self, seed: int, key: BatchKey) -> object:
        where = f"{self.name}, clock {key.clock}, shard {key.part}"
        drawn = np.random.SeedSequence(seed, spawn_key=(2, *key)).generate_state(1, np.uint64)[0]
        with surroundings(int(drawn >> np.uint64(2)), 1):
            return self.fetch(self.batches.chosen(seed, *key), where)


# What the user's dataset is.


def _unreadable(number: int, where: str, error: Exception) -> TrainerFailed:
    return TrainerFailed(
        f"{where}: sample {number} of the dataset: {' '.join(described(error).split())}"
    )


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A share of every batch, as a shard with one item for each of its samples in an epoch."""

    number: int
    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class Batches:
    """Cuts each epoch into batches of `size` samples, in random order if `shuffle`, and each batch
    into parts.

    The last batch of an epoch may be shorter, or is left out with `drop_last`. `size` is a multiple
    of `parts`.
    """

    samples: int
    size: int
    parts: int
    shuffle: bool
    drop_last: bool = False
    orders: EpochOrders | None = None
    """The order of each epoch; by default, it is drawn for the seed."""

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch; a clock is one batch."""
        if self.drop_last:
            return self.samples // self.size
        return -(-self.samples // self.size)

    def length(self, clock: int) -> int:
        """The number of samples in the batch of a clock."""
        if clock % self.per_epoch:
            return self.size
        return self._last

    def shards(self) -> list[BatchPart]:
        """The parts. One without a sample in the last batch has an empty item there, to take part
        in every clock.
        """
        before = (self.per_epoch - 1) * self._share
        return [
            BatchPart(number, before + max(1, len(self._of_last(number))))
            for number in range(self.parts)
        ]

    def chosen(self, seed: int, clock: int, part: int, lo: int, hi: int) -> Numbers:
        """The samples of items lo..hi of a part, in the epoch of a clock."""
        items = np.arange(lo, hi)
        batch, place = np.divmod(items, self._share)
        last = batch == self.per_epoch - 1
        of_last = self._of_last(part)
        positions = np.where(
            last,
            batch * self.size + of_last.start + place,
            batch * self.size + part * self._share + place,
        )

        chosen: Numbers = positions[~last | (place < len(of_last))]
        epoch = (clock - 1) // self.per_epoch
        if self.orders is not None:
            return self.orders.epoch(epoch)[chosen]
        if self.shuffle:
            return _order(self.samples, seed, epoch)[chosen]
        return chosen

    @property
    def _share(self) -> int:
        return self.size // self.parts

    @property
    def _last(self) -> int:
        return min(self.size, self.samples - (self.per_epoch - 1) * self.size)

    def _of_last(self, part: int) -> range:
        return range(self._last * part // self.parts, self._last * (part + 1) // self.parts)


@lru_cache(maxsize=2)
def _order(samples: int, seed: int, epoch: int) -> Numbers:
    seed_sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    return rng.permutation(samples)


@dataclass(frozen=True, slots=True)
class SampledBatches:
    """Batches with their lengths, and the tensors in them with PyTorch's count of changes."""

    contents: Sequence[object]
    lengths: Sequence[int]
    tensors: Sequence[tuple[torch.Tensor, int]]
    nbytes: float

    @classmethod
    def of(cls, contents: Sequence[object], lengths: Sequence[int]) -> SampledBatches:
        """Batches whose size is infinite if they hold anything but tensors and plain values."""
        try:
            tensors = [tensor for content in contents for tensor in _tensors(content)]
        except TypeError:
            return cls(contents, lengths, (), inf)
        nbytes = sum(tensor.element_size() * tensor.numel() for tensor in tensors)
        return cls(contents, lengths, [(tensor, tensor._version) for tensor in tensors], nbytes)

    @property
    def changed(self) -> bool:
        """Whether the user's code has changed a tensor in place."""
        return any(tensor._version != version for tensor, version in self.tensors)


# A batch is what the user's dataset and collate make it.
def _tensors(batch: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401
    if isinstance(batch, torch_module().Tensor):
        yield batch
    elif isinstance(batch, list | tuple | Mapping):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(value)
    elif not isinstance(batch, str | bytes | int | float | None):
        raise TypeError(type(batch).__name__)
