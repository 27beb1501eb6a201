"""A job's checkpoints: one blob for each partition and clock."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import msgspec
import numpy as np

from agileml.errors import BadFrame, Unrecoverable
from agileml.params.layout import PartitionState
from agileml.protocol.actions import Save
from agileml.protocol.messages import Tally, Version
from agileml.runtime.blob_store import BlobBytes, BlobStore
from agileml.transport.framing import checked

WRITERS = 4
"""Partitions that a node writes at the same time: each of them waits for the disk most of the
time."""

_DIMENSIONS = 32
"""As many as an array of numpy had when the first checkpoints were written."""

_PREFIX = "checkpoints/"
_NAME = re.compile(rf"{_PREFIX}p(\d+)-c(\d+)\.checkpoint")


log = logging.getLogger(__name__)


class DamagedCheckpoint(Unrecoverable):
    """A checkpoint does not hold what its name says."""


class ModelCheckpoints:
    """The checkpoints of a job in a blob store.

    A blob holds a line of JSON (clock, tally, dtypes and shapes), and then the arrays' memory.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def save(self, partition: int, version: Version) -> None:
        """Writes a version. Raises OSError if it cannot be written; an older checkpoint then
        stays."""
        self._blobs.put(_blob_name(partition, version.clock), _pieces(version))

    def load(self, partition: int, clock: int) -> Version:
        """Reads a version back. Raises Unrecoverable if it is missing or damaged."""
        name = _blob_name(partition, clock)
        content = bytearray()
        for piece in self._blobs.get(name):
            content += piece

        try:
            end = content.find(b"\n")
            header = msgspec.json.decode(content[: max(end, 0)], type=_Header)
            if header.clock != clock:
                raise ValueError(f"it holds clock {header.clock}, not {clock}")

            state: PartitionState = []
            offset = end + 1
            for described in header.arrays:
                dtype, shape, size = checked(described, _DIMENSIONS, len(content))
                values = np.frombuffer(content, dtype, prod(shape), offset)
                state.append(values.reshape(shape).copy())
                offset += size

            return Version(clock, Tally(header.chunks, header.fingerprint), state)
        except (ValueError, TypeError, BadFrame) as error:
            # Also of what a node wrote that is not itself any more.
            raise DamagedCheckpoint(f"checkpoint {name} cannot be read: {error}") from error

    def complete(self, partitions: int) -> list[int]:
        """The clocks for which every partition has a checkpoint, newest first."""
        clocks: list[set[int]] = [set() for _ in range(partitions)]
        for partition, clock in self._present():
            if partition < partitions:
                clocks[partition].add(clock)
        return sorted(set.intersection(*clocks), reverse=True)

    def delete_before(self, clock: int) -> None:
        """Deletes checkpoints of earlier clocks."""
        for partition, saved in self._present():
            if saved < clock:
                self._blobs.delete(_blob_name(partition, saved))

    def _present(self) -> Iterator[tuple[int, int]]:
        for name in self._blobs.list(_PREFIX):
            match = _NAME.fullmatch(name)
            if match:
                yield int(match[1]), int(match[2])


class CheckpointQueue:
    """Checkpoints waiting to be written, a few at a time, when the disk is slower than the job.

    All partitions of a clock that has been started are written, so that one complete checkpoint
    comes about; of the clocks waiting behind it only the latest is kept.
    """

    def __init__(self, writers: int = WRITERS) -> None:
        self._writers = writers
        self._waiting: deque[Save] = deque()
        self._writing: list[int] = []
        """The clocks of the versions that are being written."""
        self._clock = -1
        """The clock that was started last."""

    def add(self, save: Save) -> None:
        """Queues a version; drops waiting ones that it makes obsolete."""
        current = (self._clock, save.version.clock)
        self._waiting = deque(
            waiting for waiting in self._waiting if waiting.version.clock in current
        )
        self._waiting.append(save)

    def next(self) -> Save | None:
        """The version to write now; None if the queue is empty or enough are being written."""
        if not self._waiting or len(self._writing) >= self._writers:
            return None
        save = self._waiting.popleft()
        self._clock = save.version.clock
        self._writing.append(self._clock)
        return save

    def finish(self, save: Save) -> None:
        """A version has been written, or could not be."""
        self._writing.remove(save.version.clock)
        if not self._writing and not any(
            waiting.version.clock == self._clock for waiting in self._waiting
        ):
            self._clock = -1


class CheckpointCleaner:
    """Deletes checkpoints that are no longer needed, on a thread of its own: a store may be
    slow."""

    def __init__(self, checkpoints: ModelCheckpoints, sync: Callable[[], None]) -> None:
        self._checkpoints = checkpoints
        self._sync = sync
        """Makes durable which checkpoint is the latest: a restarted controller must not look for a
        deleted one."""
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self.finished: Future[None] | None = None
        """The last deletion."""
        self._latest = -1

    def keep_from(self, latest: int) -> None:
        """A checkpoint is complete. The one before it stays as well: another process may be reading
        it.
        """
        before = self._latest
        self._latest = latest
        # While earlier ones are being deleted, the next time is early enough.
        if self.finished is None or self.finished.done():
            self.finished = self._thread.submit(self._delete_before, before)

    def _delete_before(self, clock: int) -> None:
        try:
            self._sync()
            self._checkpoints.delete_before(clock)
        except OSError as error:
            log.error("cannot delete old checkpoints", exc_info=error)


def _blob_name(partition: int, clock: int) -> str:
    return f"{_PREFIX}p{partition}-c{clock}.checkpoint"


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a checkpoint."""

    clock: int
    chunks: int
    fingerprint: int
    arrays: list[tuple[str, tuple[int, ...]]]


def _pieces(version: Version) -> Iterator[BlobBytes]:
    arrays = [(array.dtype.str, array.shape) for array in version.state]
    header = _Header(version.clock, version.tally.chunks, version.tally.fingerprint, arrays)
    yield msgspec.json.encode(header) + b"\n"
    for array in version.state:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
