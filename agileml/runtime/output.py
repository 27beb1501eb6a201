"""Output of the user's code: printed to a file, from which the heartbeat process sends the text to
the job loop.

A file never blocks the user's code and outlives its process, however it ends.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 64 << 10
"""Bytes that are passed on at a time; what is printed faster is left out, up to the latest."""

LARGEST_FILE = 16 << 20
"""Size above which the file is emptied once everything in it was passed on."""

_LINE_END = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class Printed:
    """Text that a node's user code printed, as lines."""

    node: str
    text: str


Output = Callable[[Printed], None]
"""Shows what a node printed."""


def show(printed: Printed) -> None:
    """Writes what a node printed to standard error, with the name of the node before each line."""
    sys.stderr.write("".join(f"[{printed.node}] {line}\n" for line in printed.text.splitlines()))
    sys.stderr.flush()


@contextmanager
def captured(folder: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Sends what this process prints to a temporary file; also returns the descriptor of where its
    errors went.
    """
    before = os.dup(1), os.dup(2)
    descriptor, name = tempfile.mkstemp(prefix="agileml-", suffix=".out", dir=folder)
    os.close(descriptor)
    try:
        redirect(Path(name))
        yield Path(name), before[1]
    finally:
        sys.stdout.flush()
        for stream, original in enumerate(before, start=1):
            os.dup2(original, stream)
            os.close(original)
        Path(name).unlink(missing_ok=True)


def redirect(path: Path) -> None:
    """Sends what this process, and what it starts, prints to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    for text in (sys.stdout, sys.stderr):
        # What was printed must be in the file even if the process is killed.
        if hasattr(text, "reconfigure"):
            text.reconfigure(line_buffering=True)


class OutputTail:
    """Reads what is appended to a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b", buffering=0)
        self._offset = 0

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @property
    def pending(self) -> bool:
        """Whether there is something that `take` has not returned yet."""
        return os.fstat(self._file.fileno()).st_size > self._offset

    def take(self, *, last: bool = False) -> str:
        """The complete lines since the last call; with `last`, also a line that has no end."""
        size = os.fstat(self._file.fileno()).st_size
        if size == self._offset:
            return ""

        skipped = max(0, size - self._offset - MAX_BYTES)
        content = os.pread(self._file.fileno(), MAX_BYTES, self._offset + skipped)
        if not last:
            ends = [match.end() for match in _LINE_END.finditer(content)]
            if not ends and len(content) < MAX_BYTES:
                return ""
            content = content[: ends[-1]] if ends else content

        self._offset += skipped + len(content)
        if self._offset == size > LARGEST_FILE:
            os.ftruncate(self._file.fileno(), 0)
            self._offset = 0

        text = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        if skipped:
            return f"... {skipped:,} bytes left out\n{text}"
        return text
