"""Shared memory of a node and its heartbeat process: signs of progress, and of the end."""

import mmap
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agileml.protocol.messages import UNKNOWN_STEP

_LOOP_AT, _BUSY_SINCE, _USUAL_STEP, _UNREPORTED, _CLOCK, _SHARD, _GIVEN_UP, _LEAVING = range(8)
_CELL_BYTES = 8
_TEXT_BYTES = 1024
_IDLE = 0.0

RECENT_STEPS = 32
"""Number of recent steps whose longest is the usual step: steps differ, and a healthy node must not
be given up."""


class Vitals:
    """Written by the node, read by its heartbeat process, which is forked from it. Times are
    monotonic.

    Reading needs nothing of the node: its user code may hold the interpreter lock, or the node may
    be stopped.
    """

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * _CELL_BYTES)).cast("d")
        self._text, self._reason = (mmap.mmap(-1, _TEXT_BYTES) for _ in range(2))
        self._cells[_LOOP_AT] = time.monotonic()
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)

    def note_turn(self, now: float) -> None:
        """The node's message loop has made another turn."""
        self._cells[_LOOP_AT] = now

    def note_unreported(self, chunks: int) -> None:
        """Chunks are done that the node has not reported as a part of a clock."""
        self._cells[_UNREPORTED] = chunks

    @property
    def unreported(self) -> int:
        """The chunks that would have to be done again if the node were lost now."""
        return int(self._cells[_UNREPORTED])

    def note_loaded(self, entry: str) -> None:
        """The trainer is loaded; `entry` is the file and line at which its steps begin."""
        _write(self._text, entry)

    @property
    def whereabouts(self) -> str:
        """The place in the user's code, as seen without asking the node; empty if that code is not
        running.
        """
        if self._cells[_BUSY_SINCE] == _IDLE:
            return ""
        entry = _read(self._text)
        if not entry:
            return "it was loading the trainer"
        return (
            f"it was in {entry}, at clock {self._cells[_CLOCK]:.0f}, shard "
            f"{self._cells[_SHARD]:.0f}"
        )

    def give_up(self, reason: str) -> None:
        """Tells the node that the controller has given it up: its own link may be slower than this
        process's.
        """
        _write(self._reason, reason)
        self._cells[_GIVEN_UP] = True

    @property
    def given_up(self) -> str:
        """Why the controller has given the node up; empty as long as it has not."""
        if self._cells[_GIVEN_UP]:
            return _read(self._reason)
        return ""

    def leave(self) -> None:
        """The node leaves by itself; sending its last messages may take a while."""
        self._cells[_LEAVING] = True

    @property
    def leaving(self) -> bool:
        """Whether the node leaves by itself."""
        return bool(self._cells[_LEAVING])

    @contextmanager
    def step(
        self,
        *,
        first: bool,
        at: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[None]:
        """Runs user code at a clock and shard. `first`: it may also import modules and load
        data."""
        began = clock()
        self._cells[_CLOCK], self._cells[_SHARD] = at
        if first or not self._steps:
            self._cells[_USUAL_STEP] = UNKNOWN_STEP
        else:
            self._cells[_USUAL_STEP] = max(self._steps)
        self._cells[_BUSY_SINCE] = began

        try:
            yield
        finally:
            self._cells[_BUSY_SINCE] = _IDLE

        if not first:
            self._steps.append(clock() - began)

    def stalled(self, now: float) -> float:
        """Seconds since the node last made progress; a node that waits for messages makes
        progress."""
        loop = self._cells[_LOOP_AT]
        busy = self._cells[_BUSY_SINCE]
        return max(0.0, now - (min(loop, busy) if busy != _IDLE else loop))

    @property
    def usual_step(self) -> float:
        """Seconds that the present step would usually take; UNKNOWN_STEP if that is not known."""
        return self._cells[_USUAL_STEP]


def _write(memory: mmap.mmap, text: str) -> None:
    content = text.encode()[:_TEXT_BYTES]
    memory[: len(content)] = content


def _read(memory: mmap.mmap) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="replace")
