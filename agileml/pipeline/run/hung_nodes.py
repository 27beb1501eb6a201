"""Finds nodes that hang: nodes that neither answer nor compute, because they are stopped or wait forever."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agileml.checks import check_number

_QUESTIONS = 4
"""Questions to a node within the time after which the node counts as hung."""

_BUSY_FACTOR = 20.0
"""A computing node may be silent for this many times as long: nodes answer only between two pieces of work."""

_LONGEST_STEP = 1.0
"""Longer pauses between two looks count as this long: the process that looks was stopped and heard no node."""


@dataclass
class _Signs:
    silent: float = 0.0
    idle: float = 0.0
    processor: float | None = None


class HungNodes:
    """`processor` gives the processor time of a process, or None if that cannot be known."""

    def __init__(self, seconds: float, now: float, processor: Callable[[int], float | None]) -> None:
        check_number("hang_timeout", seconds, 0, above=True)
        self.seconds = seconds
        self._processor = processor
        self._signs: dict[str, _Signs] = {}
        self._looked = self._asked = now

    def heard(self, node: str) -> None:
        if node in self._signs:
            self._signs[node].silent = 0.0

    def asks(self, now: float) -> bool:
        """Whether it is time to ask all nodes for an answer."""
        if now < self._asked + self.seconds / _QUESTIONS:
            return False
        self._asked = now
        return True

    def look(self, now: float, processes: Mapping[str, int]) -> list[str]:
        """The nodes that hang, of those with these process ids."""
        step, self._looked = min(now - self._looked, _LONGEST_STEP), now
        self._signs = {node: self._signs.get(node, _Signs()) for node in processes}
        for node, process in processes.items():
            signs, used = self._signs[node], self._processor(process)
            signs.idle = signs.idle + step if used is not None and used == signs.processor else 0.0
            signs.silent, signs.processor = signs.silent + step, used
        return [node for node, signs in self._signs.items() if self._hangs(signs)]

    def _hangs(self, signs: _Signs) -> bool:
        return min(signs.silent, signs.idle) > self.seconds or signs.silent > _BUSY_FACTOR * self.seconds


def processor_seconds(process: int) -> float | None:
    """Processor time that a process has used, where /proc says it."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (float(fields[11]) + float(fields[12])) / os.sysconf("SC_CLK_TCK")
