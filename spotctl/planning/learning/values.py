"""Estimates from earlier runs, as frozen values, each with its number of observations."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from bidbrain.eviction.hazard import Evidence
from pricing_data.units import MINUTE, counted, to_datetime

RUN_SPREAD = 0.05
"""Throughputs of runs scatter by this standard deviation around their mean, whatever their length."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Clocks per hour of one machine of a type when `size` machines work together."""

    per_hour: float
    size: float
    runs: int
    last: int

    @property
    def spread(self) -> float:
        """How far a run may be from the estimate: the spread of one run and of the mean of the measured runs."""
        return RUN_SPREAD * sqrt(1 + 1 / self.runs)

    def words(self, name: str) -> str:
        """The estimate as a plan shows it."""
        return f"throughput of {name}: {self.per_hour:.4g} clocks/h from {_runs(self.runs, self.last)}"


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """A duration in microseconds with its number of observations; `assumed` is the prior."""

    span: int
    seen: int
    assumed: int

    def words(self, name: str) -> str:
        """The estimate as a plan shows it."""
        measured, assumed = self.span / MINUTE, self.assumed / MINUTE
        return f"{name} {measured:.1f} minutes (assumed {assumed:.1f}, measured {_times(self.seen)})"


@dataclass(frozen=True, slots=True)
class Learned:
    """Estimates from the runs of one job; `last` is when the newest ended, on this computer's clock.

    `scaling` is s if n machines do n^(1 + s) times the work of one (phi is n^s; 0 is linear scaling). `hours` is how
    long all its machines need for a job whose work is not counted in clocks. `save_seconds` is what a checkpoint of a
    command takes.
    """

    runs: int
    last: int
    throughputs: Mapping[str, Throughput]
    scaling: float
    startup: MeasuredSpan
    eviction: MeasuredSpan
    hours: float | None
    evidence: tuple[Evidence, ...]
    save_seconds: float | None = None

    def per_hour(self, name: str, size: float) -> float:
        """Clocks per hour of one machine of a type among `size`: the measured figure, scaled by phi."""
        throughput = self.throughputs[name]
        return float(throughput.per_hour * (size / throughput.size) ** self.scaling)

    def words(self) -> tuple[str, ...]:
        """Measured overheads as a plan shows them."""
        spells = (("start-up", self.startup), ("an eviction costs", self.eviction))
        return tuple(spell.words(name) for name, spell in spells if spell.seen)


def _runs(runs: int, last: int) -> str:
    return f"{counted(runs, 'run')}, last {to_datetime(last).date().isoformat()}"


def _times(seen: int) -> str:
    return "once" if seen == 1 else f"{seen} times"


@dataclass(frozen=True, slots=True)
class WorkOfSize:
    """The work of `size` transient machines together: clocks, and machine-hours by type."""

    size: int
    clocks: float
    hours: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Observed:
    """One run. `startups` (from allocation to first work) and `losses` (work repeated after an eviction) are durations
    in microseconds. `machine_hours` counts transient machines at work. `saves` are the seconds that its checkpoints
    took."""

    wall_ended: int
    done: bool
    machine_hours: float
    cells: tuple[WorkOfSize, ...]
    startups: tuple[float, ...]
    losses: tuple[float, ...]
    evidence: tuple[Evidence, ...]
    saves: tuple[float, ...] = ()
