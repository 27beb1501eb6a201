"""How the samples of batches are read: by processes of a node, and of datasets without numbers as
streams.

Processes read batches ahead of the clocks that need them, as DataLoader's workers do. They are
forked from the node, as DataLoader forks its own, and have the dataset from it. The content of a
batch follows from its clock, part and items alone, so that it is the same on every node, and when
it is read again.

Samples of an IterableDataset have no numbers: each part of a batch reads a stream of its own. A
part's position in its stream is a row of an array of the model. It is backed up, moved and rolled
back together with the weights that it belongs to, so that a part that goes on elsewhere reads just
the samples that follow.
"""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from agileml.errors import AgileMLError, BadTrainer, TrainerFailed, torch_module
from agileml.params.layout import Array
from agileml.torch.orders import renew_lock
from agileml.user_code import described

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset


_END_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of Linux."""


class BatchKey(NamedTuple):
    """The items of a part in a clock."""

    clock: int
    part: int
    low: int
    high: int


_read: Callable[[BatchKey], Any]
"""In a process that reads."""


@dataclass
class Loaders:
    """Reads batches in `workers` processes, which are started for the first."""

    workers: int
    read: Callable[[BatchKey], Any]
    _coming: dict[BatchKey, Future[Any]] = field(default_factory=dict)
    _pool: ProcessPoolExecutor | None = None

    # What the user's dataset makes.
    def take(self, key: BatchKey, following: Iterable[BatchKey]) -> Any:  # noqa: ANN401
        """The batch of a key; those that follow are read from now on."""
        here = self._coming.pop(key, None) or self._submit(key)
        for outdated in [other for other in self._coming if other.clock < key.clock]:
            self._coming.pop(outdated).cancel()
        for other in following:
            if other not in self._coming:
                self._coming[other] = self._submit(other)

        try:
            batch = here.result()
        except BrokenProcessPool as error:
            raise TrainerFailed(
                "a process that reads batches (workers) was killed; memory may have run out"
            ) from error

        if isinstance(batch, AgileMLError):
            raise batch
        return batch

    def _submit(self, key: BatchKey) -> Future[Any]:
        if self._pool is None:
            # Tensors of the answers lie in shared memory once this is imported.
            import torch.multiprocessing  # noqa: F401

            context = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(
                self.workers, context, initializer=_begin, initargs=(self.read,)
            )
        return self._pool.submit(_read_in_child, key)


def _begin(read: Callable[[BatchKey], Any]) -> None:
    global _read  # noqa: PLW0603 - the pool passes on nothing else
    _read = read
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    renew_lock()

    # Peers must see the end of the node's links when the node is gone.
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)


def _read_in_child(key: BatchKey) -> Any:  # noqa: ANN401
    try:
        return _read(key)
    except AgileMLError as error:
        # Without its cause, which may be anything.
        return type(error)(str(error))


MIN_POSITION_BYTES = 256
"""Bytes of a position, at least; there is room for four times as many as the first one takes."""

_pack = msgspec.msgpack.Encoder().encode


class StreamPosition(msgspec.Struct, array_like=True):
    """The samples read in a pass over the stream, and what the dataset itself says about its
    state."""

    epoch: int = 0
    read: int = 0
    state: Any = None


_START = StreamPosition()
_unpack = msgspec.msgpack.Decoder(StreamPosition).decode


@dataclass
class _Worker:
    """Stands for `torch.utils.data.get_worker_info()`, and notes whether the dataset asked for its
    share.
    """

    part: int
    parts: int
    dataset: Any
    seed: int = 0
    asked: bool = False

    @property
    def id(self) -> int:
        self.asked = True
        return self.part

    @property
    def num_workers(self) -> int:
        self.asked = True
        return self.parts


class _PartStream:
    """The stream of one part from a position on."""

    def __init__(
        self,
        name: str,
        dataset: IterableDataset[Any],
        place: tuple[int, int],
        position: StreamPosition,
    ) -> None:
        self._name = name
        self._dataset = dataset
        self._worker = _Worker(*place, dataset)
        self._epoch = position.epoch
        self._read = position.read
        self._iterator: Any = self._begin(position)
        self.origin = self.reached = b""
        """From where it was asked to read, and where that led."""
        self.taken = 0
        """The samples that it gave since its origin."""

    def take(self, count: int) -> list[Any]:
        """The next samples of the part. Unless the dataset divides itself, those of the other parts
        are left out.
        """
        samples: list[Any] = []
        with self._as_worker():
            while len(samples) < count:
                sample = self._next()
                if self._worker.asked or (self._read - 1) % self._worker.parts == self._worker.part:
                    samples.append(sample)
        return samples

    def position(self) -> StreamPosition:
        holder = self._stateful()
        return StreamPosition(
            self._epoch, self._read, None if holder is None else holder.state_dict()
        )

    # The iterator of the user's dataset.
    def _begin(self, position: StreamPosition) -> Any:  # noqa: ANN401
        """The iterator at a position: the dataset's own state leads there, or reading what comes
        before.
        """
        with self._as_worker():
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(position.epoch)
            if position.state is not None and hasattr(self._dataset, "load_state_dict"):
                self._dataset.load_state_dict(position.state)
            self._iterator = iter(self._dataset)
            holder = self._stateful()
            if position.state is not None and holder is self._iterator:
                holder.load_state_dict(position.state)
            elif position.state is None:
                for _ in range(position.read):
                    next(self._iterator)
        return self._iterator

    def _stateful(self) -> Any:  # noqa: ANN401 - the user's dataset, or its iterator
        holders = (self._dataset, self._iterator)
        return next((holder for holder in holders if hasattr(holder, "state_dict")), None)

    def _next(self) -> object:
        try:
            sample = next(self._iterator)
        except StopIteration:
            if self._read <= (0 if self._worker.asked else self._worker.part):
                raise BadTrainer(
                    f"{self._name}: part {self._worker.part} of {self._worker.parts} has no sample "
                    f"in the stream of {type(self._dataset).__name__}; use fewer parts"
                ) from None
            self._epoch += 1
            self._read = 0
            self._iterator = self._begin(StreamPosition(self._epoch))
            return self._next()

        self._read += 1
        return sample

    @contextmanager
    def _as_worker(self) -> Iterator[None]:
        worker = torch_module().utils.data._utils.worker
        before = worker._worker_info
        worker._worker_info = self._worker
        try:
            yield
        finally:
            worker._worker_info = before


@dataclass(eq=False)
class Streams:
    """The streams of all parts of a dataset, whose own object stays as it is."""

    name: str
    dataset: IterableDataset[Any]
    parts: int
    _open: dict[int, _PartStream] = field(default_factory=dict)

    def positions(self) -> Array:
        """The rows of all parts at the start: the length, and then that many bytes."""
        first = len(self._packed(self._stream(0, _START)))
        return np.zeros((self.parts, 1 + max(MIN_POSITION_BYTES, 4 * first)), np.int32)

    def first(self, part: int, low: int, high: int) -> list[Any]:
        """Samples of a part from its beginning on, by a stream of their own."""
        stream = self._stream(part, _START)
        return stream.take(high)[low:]

    def read(
        self, part: int, row: Array, low: int, high: int, where: str
    ) -> tuple[list[Any], Array]:
        """Samples `low` to `high` of a part's share of one clock, and the row for the part's
        position after them. `row` holds the position at which the clock began."""
        origin = row[1 : 1 + row[0]].astype(np.uint8).tobytes()
        at = self._open.pop(part, None)
        try:
            goes_on = at is not None and origin == at.reached and not low
            if at is None or not (goes_on or (at.origin, at.taken) == (origin, low)):
                at = self._stream(part, _unpack(origin) if origin else _START)
                at.take(low)
            samples = at.take(high - low)
            reached = self._packed(at)
        except (BadTrainer, MemoryError):
            raise
        except Exception as error:
            text = " ".join(described(error).split())
            raise TrainerFailed(
                f"{where}: the stream of {type(self.dataset).__name__}: {text}"
            ) from error

        at.origin = origin
        at.taken = high
        at.reached = reached
        self._open[part] = at
        size = len(reached)
        width = len(row)
        if size >= width:
            raise BadTrainer(
                f"{self.name}: the state of {type(self.dataset).__name__} has grown to {size:,} "
                "bytes, and there"
                f" is room for {width - 1:,}: it may take four times as many as before the first "
                "sample"
            )

        after = np.zeros(width, np.int32)
        after[0], after[1 : 1 + size] = size, np.frombuffer(reached, np.uint8)
        return samples, after

    def _packed(self, stream: _PartStream) -> bytes:
        try:
            return _pack(stream.position())
        except (TypeError, ValueError, OverflowError) as error:
            raise BadTrainer(
                f"{self.name}: the state_dict of {type(self.dataset).__name__} holds more than "
                f"numbers, texts, lists and dicts: {error}"
            ) from error

    def _stream(self, part: int, position: StreamPosition) -> _PartStream:
        try:
            own = copy.deepcopy(self.dataset)
        except Exception as error:
            raise BadTrainer(
                f"{self.name}: {type(self.dataset).__name__} cannot be copied "
                f"({' '.join(str(error).split())}), but"
                " each part needs a stream of its own; open files and connections in __iter__"
            ) from error
        return _PartStream(self.name, own, (part, self.parts), position)
