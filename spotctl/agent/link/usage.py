"""How busy this machine is: its GPUs, as the driver's own tool measures, and the bytes that it
received and sent.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spotctl.agent.container.processes import exit_code_of, signal_group, start_group

EVERY_SECONDS = 15.0
"""Not more often, because the tool takes a noticeable part of a second, and more on a machine with
many GPUs."""
LONGEST_SECONDS = 10.0
"""Then the tool is killed: a driver in trouble makes it hang."""

_TOOL = "nvidia-smi"
_QUERY = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Percent of the time that a machine's GPUs computed, on average, and percent of their memory
    in use.
    """

    busy: int
    memory: int


@dataclass(slots=True)
class _CardSample:
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    began: float
    killed: bool = False


class GpuWatch:
    """Samples on request, at most every `EVERY_SECONDS`, and never waits for the tool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._use: GpuUse | None = None
        self._sample: _CardSample | None = None
        self._due = 0.0

    def use(self) -> GpuUse | None:
        """The last finished sample; None without NVIDIA's tool, or if it failed or took too
        long."""
        if (sample := self._sample) is not None:
            code = exit_code_of(sample.process)
            if code is not None:
                sample.process.wait()
                sample.out.seek(0)
                self._use = None if code else parsed(sample.out.read().decode(errors="replace"))
                sample.out.close()
                self._sample = None
            elif not sample.killed and time.monotonic() >= sample.began + LONGEST_SECONDS:
                # A tool that hangs in the driver may outlive even SIGKILL, so nothing waits for it.
                signal_group(sample.process, signal.SIGKILL)
                sample.killed, self._use = True, None

        if self._sample is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._sample = self._begin()
        return self._use

    def end(self) -> None:
        """Kills a sample that still runs."""
        if self._sample is not None:
            signal_group(self._sample.process, signal.SIGKILL)
            self._sample.out.close()

    def _begin(self) -> _CardSample | None:
        tool = shutil.which(_TOOL)
        if tool is None:
            self._use = None
            return None

        with ExitStack() as on_failure:
            try:
                # A file, because reading a pipe could wait for processes that the tool has started.
                out = on_failure.enter_context(tempfile.TemporaryFile(dir=self._folder))
                process = start_group(
                    (tool, *_QUERY), self._folder, os.environ, out, subprocess.DEVNULL
                )
            except OSError:
                # The disk is full, or the tool is no program.
                self._use = None
                return None
            on_failure.pop_all()

        return _CardSample(process, out, time.monotonic())


def parsed(answer: str) -> GpuUse | None:
    """The use of all GPUs, from one line for each (`87, 49813, 81559`); GPUs without figures do not
    count.
    """
    gpus: list[tuple[int, int, int]] = []
    for line in answer.splitlines():
        # The tool prints `[N/A]` for a GPU that is divided between users.
        with suppress(ValueError):
            busy, used, memory = (int(part) for part in line.split(","))
            gpus.append((busy, used, memory))

    total = sum(memory for _, _, memory in gpus)
    if not total:
        return None

    busy, used = sum(busy for busy, _, _ in gpus), sum(used for _, used, _ in gpus)
    return GpuUse(round(busy / len(gpus)), round(100 * used / total))


COUNTERS = Path("/proc/net/dev")

_INNER_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "podman", "cni")
"""Interfaces to the machine itself and to its containers. Bytes that leave the machine pass an
outer interface, too."""
_RECEIVED, _SENT = 0, 8
"""Columns of the counters."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on all network interfaces."""

    received: int
    sent: int


def traffic(counters: Path = COUNTERS) -> Traffic | None:
    """The machine's traffic; None if the kernel has no counters."""
    try:
        lines = counters.read_text().splitlines()
        named = [line.split(":", 1) for line in lines if ":" in line]
        outside = [
            figures.split()
            for name, figures in named
            if not name.strip().startswith(_INNER_INTERFACES)
        ]
        return Traffic(
            sum(int(row[_RECEIVED]) for row in outside), sum(int(row[_SENT]) for row in outside)
        )
    except (OSError, ValueError, IndexError):
        return None
