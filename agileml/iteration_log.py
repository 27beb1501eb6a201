"""The iteration log: one JSON object a clock, and one for the whole job at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from agileml.core.events import Iteration
from agileml.errors import BadArgument
from agileml.job import Trained
from agileml.reference import model_digest


def line_of(iteration: Iteration) -> dict[str, Any]:
    """A finished clock. Seconds are those since the clock before; the loss is that of the model before the clock."""
    sums = iteration.sums
    return {
        "clock": iteration.clock,
        "seconds": iteration.seconds,
        "stage": iteration.stage,
        "nodes": {"reliable": iteration.reliable, "transient": iteration.transient},
        "bytes": {"push": sums.pushed, "pull": sums.pulled, "backup": sums.backup},
        "loss": iteration.loss,
        "redone": iteration.redone,
        "events": list(iteration.events),
        "accepted": [list(cover) for cover in iteration.accepted],
    }


def last_line_of(trained: Trained) -> dict[str, Any]:
    """How a job ended; updates that were sent and not applied are lost."""
    return {
        "clocks": trained.clocks,
        "updates_sent": trained.counters.sent,
        "updates_applied": trained.counters.applied,
        "updates_lost": trained.counters.lost,
        "updates_doubled": trained.counters.doubled,
        "evictions": trained.evictions,
        "failures": trained.failures,
        "model_sha256": model_digest(trained.model),
    }


class IterationLog:
    """A log that is being written, each line as soon as its clock is done. One without a last line did not end well.

    A file that is there already is kept until the first clock is done: a job that cannot begin takes nothing away.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> IterationLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, iteration: Iteration) -> None:
        """A clock is done."""
        self._put(line_of(iteration))

    def end(self, last_line: Mapping[str, Any]) -> None:
        """The job is done."""
        self._put(last_line)

    def _put(self, line: Mapping[str, Any]) -> None:
        file = self._file = self._file or self._opened()
        file.write(json.dumps(line, allow_nan=False) + "\n")
        file.flush()

    def _opened(self) -> TextIO:
        try:
            return self._path.open("w", encoding="utf-8")
        except OSError as error:
            raise BadArgument(
                f"log {self._path}: {error.strerror or error}; name a file in a folder that is there"
            ) from error
