"""The output of a machine's payloads, as callers read it: bytes from an offset on, and when they
were printed.

Times are in a file next to the output, with a line `BYTES MICROSECONDS` for each growth.
"""

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_SECONDS = 1.0
"""The resolution of times, which are exact only when a caller has just asked for the output."""

OUTPUT_CHUNK = 1 << 18
"""Bytes of output in one answer, if there are as many."""

_MAX_DIGITS = 17
"""With more, a moment may be after the year 9999, which no calendar has."""


def times_file(output: Path) -> Path:
    return output.with_name(f"{output.name}.times")


class OutputTimes:
    """Writes the times of one output. On a full disk only the times are lost."""

    def __init__(self, output: Path) -> None:
        self._output, self._file = output, times_file(output)
        self._noted, self._due = 0, 0.0

    def note(self, *, now: bool = False) -> None:
        """Notes the size of an output that has grown, at most once a second unless `now`."""
        moment = time.monotonic()
        if not now and moment < self._due:
            return

        self._due = moment + EVERY_SECONDS
        with suppress(OSError):
            size = self._output.stat().st_size
            if size > self._noted:
                self._noted = size
                with self._file.open("a") as file:
                    file.write(f"{size} {time.time_ns() // 1000}\n")


def parse_times(text: bytes) -> Iterator[tuple[int, int]]:
    """Pairs of a number of bytes and the time by which they were printed, in microseconds since
    1970.

    Torn lines are left out, and numbers that are no time: a machine may write anything.
    """
    for line in text.splitlines(keepends=True):
        words = line.split()
        if (
            line.endswith(b"\n")
            and len(words) == 2
            and all(word.isdigit() and len(word) <= _MAX_DIGITS for word in words)
        ):
            yield int(words[0]), int(words[1])


def read_chunk(path: Path, after: int, most: int) -> str:
    """Bytes of a file from an offset on, as base64; empty where there are none (yet)."""
    if after < 0:
        raise ValueError(f"offset {after} is below 0")
    return base64.b64encode(read_from(path, after, most)).decode()


def read_from(path: Path, after: int, most: int = -1) -> bytes:
    """Bytes of a file from an offset on, at most `most` (-1: all); empty where there are none
    (yet).
    """
    try:
        with path.open("rb") as file:
            file.seek(after)
            return file.read(most)
    except FileNotFoundError:
        return b""
