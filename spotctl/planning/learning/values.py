"""What was learnt, as frozen values: each figure with how much it was seen, and when last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bidbrain.eviction.hazard import Evidence
from pricing_data.units import MINUTE, to_datetime


@dataclass(frozen=True, slots=True)
class Throughput:
    """Clocks an hour of one machine of a type, where `size` machines work together."""

    per_hour: float
    size: float
    runs: int
    last: int

    def words(self, name: str) -> str:
        """For a plan."""
        return f"throughput of {name}: {self.per_hour:.4g} clocks/h from {_runs(self.runs, self.last)}"


@dataclass(frozen=True, slots=True)
class Spell:
    """A span (microseconds) that was seen so many times; `assumed` is what it was taken to be before."""

    span: int
    seen: int
    assumed: int

    def words(self, name: str) -> str:
        """For a plan."""
        measured, assumed = self.span / MINUTE, self.assumed / MINUTE
        return f"{name} {measured:.1f} minutes (assumed {assumed:.1f}, measured {_times(self.seen)})"


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the runs of one job taught; `last` is when the newest ended, on this computer's clock.

    `scaling` is s where n machines do n^(1 + s) times what one does (phi is n^s; 0: they do not hinder each other).
    `hours` is how long all its machines need for the job, for one whose work is not counted.
    """

    runs: int
    last: int
    throughputs: Mapping[str, Throughput]
    scaling: float
    startup: Spell
    eviction: Spell
    hours: float | None
    evidence: tuple[Evidence, ...]

    def per_hour(self, name: str, size: float) -> float:
        """Clocks an hour of one machine of a type among `size`: what was measured, and phi for the difference."""
        one = self.throughputs[name]
        return float(one.per_hour * (size / one.size) ** self.scaling)

    def words(self) -> tuple[str, ...]:
        """What a plan says of it beside throughputs."""
        spells = (("start-up", self.startup), ("an eviction costs", self.eviction))
        return tuple(one.words(name) for name, one in spells if one.seen)


def _runs(runs: int, last: int) -> str:
    counted = "1 run" if runs == 1 else f"{runs} runs"
    return f"{counted}, last {to_datetime(last).date().isoformat()}"


def _times(seen: int) -> str:
    return "once" if seen == 1 else f"{seen} times"
