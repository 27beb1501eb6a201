"""When a machine's output was printed: a file next to it, a line `BYTES MICROSECONDS` each time when it has grown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_SECONDS = 1.0
"""At most as old as this is the time of a line, unless a caller has just asked for the output."""


def times_file(output: Path) -> Path:
    return output.with_name(f"{output.name}.times")


class OutputTimes:
    """Writes the times of one output. Its loss, on a full disk, costs the times and nothing else."""

    def __init__(self, output: Path) -> None:
        self._output, self._file = output, times_file(output)
        self._noted, self._due = 0, 0.0

    def note(self, *, now: bool = False) -> None:
        """Notes how much has been printed by now, if it is more than before, and at most once a second unless `now`."""
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
    """Bytes that were printed by a time, and that time in microseconds since 1970; torn lines are left out."""
    for line in text.splitlines(keepends=True):
        words = line.split()
        if line.endswith(b"\n") and len(words) == 2 and all(word.isdigit() for word in words):
            yield int(words[0]), int(words[1])
