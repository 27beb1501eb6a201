"""Notes when a machine's output was printed: a file next to the output, with a line `BYTES MICROSECONDS` per growth."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_SECONDS = 1.0
"""The resolution of times, which are exact only when a caller has just asked for the output."""


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
    """Pairs of a number of bytes and the time by which they were printed, in microseconds since 1970.

    Torn lines are left out.
    """
    for line in text.splitlines(keepends=True):
        words = line.split()
        if line.endswith(b"\n") and len(words) == 2 and all(word.isdigit() for word in words):
            yield int(words[0]), int(words[1])
