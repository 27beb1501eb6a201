"""The output of what runs on a machine, as callers read it over the link: bytes from an offset on.

Of a payload's output it is also known when it was printed: a file next to it has a line
`BYTES MICROSECONDS` for each growth. A person's commands run next to the payload, each with its two
streams, until its caller has read them to the end.
"""

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import (
    CANNOT_START,
    Surroundings,
    exit_code_of,
    signal_group,
    start_group,
)
from spotctl.agent.errors import BrokenProtocol

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


MAX_RUNNING = 16
CHUNK = 1 << 17
"""Bytes of either stream in one answer."""


@dataclass(slots=True)
class _Execution:
    """One command: its connection, the folder of its output, and its process (None: it did not
    start).
    """

    connection: int
    folder: Path
    process: subprocess.Popen[bytes] | None
    code: int | None = field(default=None)


class Executions:
    """The commands of all callers. A command ends by itself, when its caller disconnects, or with
    the machine.
    """

    def __init__(self, machine: Path) -> None:
        self._machine = machine
        self._all: dict[int, _Execution] = {}
        self._started = 0

    @property
    def running(self) -> bool:
        """Whether any command has not ended."""
        return any(execution.code is None for execution in self._all.values())

    def start(self, connection: int, command: tuple[str, ...], payload: Payload | None) -> int:
        """Starts a command in the folder and the environment of the payload; returns its number for
        `read`.
        """
        if sum(execution.code is None for execution in self._all.values()) >= MAX_RUNNING:
            raise BrokenProtocol(
                f"{MAX_RUNNING} commands are already running; wait for one of them to end"
            )
        if not command:
            raise BrokenProtocol("exec needs a command")

        surroundings = Surroundings(
            self._machine, os.getpid(), "" if payload is None else payload.folder
        )
        folder = Path(tempfile.mkdtemp(prefix="exec-", dir=self._machine))
        self._started += 1
        process: subprocess.Popen[bytes] | None = None

        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            try:
                words = surroundings.wrap(command)
                process = start_group(
                    words, surroundings.folder, surroundings.environment, out, err
                )
            except (OSError, ValueError) as error:
                err.write(f"{command[0]}: {getattr(error, 'strerror', None) or error}".encode())

        self._all[self._started] = _Execution(
            connection, folder, process, CANNOT_START if process is None else None
        )
        return self._started

    def read(self, connection: int, number: int, out: int, err: int) -> dict[str, Any]:
        """Output from these offsets on, and the exit code; after the last byte and the code, the
        command is forgotten.

        The code is None while there may be more to read.
        """
        execution = self._all.get(number)
        if execution is None or execution.connection != connection:
            raise BrokenProtocol(f"exec {number}: there is no such command")

        self.advance()
        chunks = {
            name: read_chunk(execution.folder / name, at, CHUNK)
            for name, at in (("out", out), ("err", err))
        }
        done = execution.code is not None and not any(chunks.values())
        if done:
            self._forget(number)

        return {**chunks, "code": execution.code if done else None}

    def advance(self) -> None:
        """Notes which commands have ended, and kills the processes that remain in their groups."""
        for execution in self._all.values():
            process = execution.process
            if (
                execution.code is None
                and process is not None
                and (code := exit_code_of(process)) is not None
            ):
                signal_group(process, signal.SIGKILL)
                process.wait()
                execution.code = code

    def end(self, connection: int | None = None) -> None:
        """Ends the commands of a caller that has disconnected, or of all."""
        for number, execution in list(self._all.items()):
            if connection in (None, execution.connection):
                self._forget(number)

    def _forget(self, number: int) -> None:
        execution = self._all.pop(number)
        if execution.code is None and execution.process is not None:
            signal_group(execution.process, signal.SIGKILL)
            execution.process.wait()
        shutil.rmtree(execution.folder, ignore_errors=True)
