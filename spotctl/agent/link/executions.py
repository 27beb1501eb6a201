"""Commands that a person runs on a machine over its link, next to the machine's own payload."""

import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import (
    CANNOT_START,
    exit_code_of,
    signal_group,
    start_group,
    surroundings_of,
)
from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.link.output import read_chunk

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

        surroundings = surroundings_of(
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

    def disconnect(self, connection: int) -> None:
        """Ends the commands of a caller that has disconnected."""
        for number, execution in list(self._all.items()):
            if execution.connection == connection:
                self._forget(number)

    def end(self) -> None:
        for number in list(self._all):
            self._forget(number)

    def _forget(self, number: int) -> None:
        execution = self._all.pop(number)
        if execution.code is None and execution.process is not None:
            signal_group(execution.process, signal.SIGKILL)
            execution.process.wait()
        shutil.rmtree(execution.folder, ignore_errors=True)
