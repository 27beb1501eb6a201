"""Checkpoints on disk: one file per partition and clock, whole or not there, and known by its digest."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from agileml.errors import Unrecoverable
from agileml.params.layout import State
from agileml.protocol.actions import Save
from agileml.protocol.messages import Tally, Version

DIGEST_BYTES = 32


class DamagedCheckpoint(Unrecoverable):
    """A checkpoint is not what was written: it cannot be gone back to."""


class Checkpoints:
    """The checkpoints of a job.

    A file holds the SHA-256 of what follows, a line of JSON (clock, tally, types and shapes), and the arrays' memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, partition: int, version: Version) -> None:
        """Writes a version; a crash leaves the whole file or none."""
        self._folder.mkdir(exist_ok=True)
        pieces = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in version.state]
        head = {
            "clock": version.clock,
            "chunks": version.tally.chunks,
            "fingerprint": version.tally.fingerprint,
            "arrays": [(array.dtype.str, array.shape) for array in version.state],
        }
        line = json.dumps(head).encode() + b"\n"
        digest = sha256(line)
        for piece in pieces:
            digest.update(piece)
        path = self._path(partition, version.clock)
        # Two nodes may write the same version, one of which was given up and does not know it yet.
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            file.write(digest.digest() + line)
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(self._folder)

    def load(self, partition: int, clock: int) -> Version:
        """Reads a version back; what is damaged or missing is refused."""
        path = self._path(partition, clock)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DamagedCheckpoint(f"checkpoint {path} cannot be read: {error.strerror}") from error
        rest = memoryview(content)[DIGEST_BYTES:]
        if sha256(rest).digest() != content[:DIGEST_BYTES]:
            raise DamagedCheckpoint(f"checkpoint {path} is damaged: its digest is not that of what it holds")
        end = content.index(b"\n", DIGEST_BYTES)
        head = json.loads(content[DIGEST_BYTES:end])
        if head["clock"] != clock:
            raise DamagedCheckpoint(f"checkpoint {path} holds clock {head['clock']}, not {clock}")
        tally = Tally(head["chunks"], head["fingerprint"])
        return Version(clock, tally, _state(head["arrays"], memoryview(content)[end + 1 :]))

    def whole(self, partitions: int) -> list[int]:
        """The clocks of which every partition has a file, newest first."""
        found = [set(self._clocks(partition)) for partition in range(partitions)]
        return sorted(set.intersection(*found), reverse=True)

    def forget_before(self, clock: int) -> None:
        """Removes what is older than this clock."""
        for path in self._folder.glob("p*-c*.checkpoint"):
            if int(path.stem.partition("-c")[2]) < clock:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    def _clocks(self, partition: int) -> Iterator[int]:
        for path in self._folder.glob(f"p{partition}-c*.checkpoint"):
            yield int(path.stem.partition("-c")[2])

    def _path(self, partition: int, clock: int) -> Path:
        return self._folder / f"p{partition}-c{clock}.checkpoint"


class Backlog:
    """What is to be written, one version at a time, where disks are slower than the job.

    A clock that was begun with is written to its end, so that there is a checkpoint at all; of those that wait behind
    it only the latest is of use.
    """

    def __init__(self) -> None:
        self._waiting: deque[Save] = deque()
        self._clock: int | None = None

    def add(self, save: Save) -> None:
        """To be written in its turn."""
        kept = (self._clock, save.version.clock)
        self._waiting = deque(one for one in self._waiting if one.version.clock in kept)
        self._waiting.append(save)

    def next(self) -> Save | None:
        """The next one, which is to be written now."""
        save = self._waiting.popleft() if self._waiting else None
        self._clock = save.version.clock if save else None
        return save


def _state(table: list[tuple[str, list[int]]], body: memoryview) -> State:
    state: State = []
    offset = 0
    for code, shape in table:
        dtype: np.dtype[Any] = np.dtype(code)
        count = prod(shape)
        state.append(np.frombuffer(body, dtype, count, offset).reshape(shape).copy())
        offset += count * dtype.itemsize
    return state


def _sync_folder(folder: Path) -> None:
    """Makes a rename outlive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
