"""How busy this machine's graphics cards are, as the driver's own tool says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spotctl.agent.command import exit_code_of, signal_group, start_group

EVERY_SECONDS = 15.0
"""The tool takes a noticeable part of a second, and more on a machine with many cards."""
LONGEST_SECONDS = 10.0
"""A driver in trouble makes the tool hang."""

_TOOL = "nvidia-smi"
_QUERY = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class CardUse:
    """Percent of the time that a machine's cards computed, on average, and percent of their memory in use."""

    busy: int
    memory: int


@dataclass(slots=True)
class _Sample:
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    began: float
    killed: bool = False


class CardWatch:
    """Samples when it is asked, at most every `EVERY_SECONDS`, and never waits for the tool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._use: CardUse | None = None
        self._sample: _Sample | None = None
        self._due = 0.0

    def use(self) -> CardUse | None:
        """The last finished sample; None without NVIDIA's tool, or if it failed or took too long."""
        self._advance()
        if self._sample is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._sample = self._begun()
        return self._use

    def end(self) -> None:
        """Kills a sample that still runs."""
        if self._sample is not None:
            signal_group(self._sample.process, signal.SIGKILL)
            self._sample.out.close()

    def _begun(self) -> _Sample | None:
        tool = shutil.which(_TOOL)
        if tool is None:
            self._use = None
            return None
        with ExitStack() as unless_begun:
            try:
                # A file, because reading a pipe could wait for whatever the tool has started.
                out = unless_begun.enter_context(tempfile.TemporaryFile(dir=self._folder))
                process = start_group((tool, *_QUERY), self._folder, os.environ, out, subprocess.DEVNULL)
            except OSError:
                # The disk is full, or the tool is no program.
                self._use = None
                return None
            unless_begun.pop_all()
        return _Sample(process, out, time.monotonic())

    def _advance(self) -> None:
        """Notes a finished sample, and gives up on one that takes too long."""
        one = self._sample
        if one is None:
            return
        code = exit_code_of(one.process)
        if code is not None:
            one.process.wait()
            one.out.seek(0)
            self._use = None if code else parsed(one.out.read().decode(errors="replace"))
            one.out.close()
            self._sample = None
        elif not one.killed and time.monotonic() >= one.began + LONGEST_SECONDS:
            # One that hangs in the driver may outlive even this, so it is not waited for.
            signal_group(one.process, signal.SIGKILL)
            one.killed, self._use = True, None


def parsed(answer: str) -> CardUse | None:
    """The use of all cards in a line for each (`87, 49813, 81559`); those that do not state it do not count."""
    cards = [card for line in answer.splitlines() if (card := _card(line)) is not None]
    total = sum(of for _, _, of in cards)
    if not total:
        return None
    return CardUse(round(sum(busy for busy, _, _ in cards) / len(cards)), round(100 * sum(c[1] for c in cards) / total))


def _card(line: str) -> tuple[int, int, int] | None:
    # A card that is divided between users says `[N/A]`.
    try:
        busy, used, total = (int(part) for part in line.split(","))
    except ValueError:
        return None
    return busy, used, total
