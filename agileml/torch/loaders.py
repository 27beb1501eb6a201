"""Processes of a node that read batches ahead of the clocks that need them, as DataLoader's workers do.

They are forked from the node, as DataLoader forks its own, and have the dataset from it. The content of a batch follows
from its clock, part and items alone, so that it is the same on every node, and when it is read again.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agileml.errors import AgileMLError, TrainerFailed
from agileml.torch.surroundings import renew_lock

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

    def take(self, key: BatchKey, following: Iterable[BatchKey]) -> Any:  # noqa: ANN401 - what the user's dataset makes
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
            raise TrainerFailed("a process that reads batches (workers) was killed; memory may have run out") from error
        if isinstance(batch, AgileMLError):
            raise batch
        return batch

    def _submit(self, key: BatchKey) -> Future[Any]:
        if self._pool is None:
            # Tensors of the answers lie in shared memory once this is imported.
            import torch.multiprocessing  # noqa: F401

            context = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=_begin, initargs=(self.read,))
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
