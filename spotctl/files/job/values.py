"""The values of a job file that are more than a number or text.

Spans are microseconds and money is nano-dollars, as in `pricing_data.units`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Generic, TypeVar

from pricing_data.units import to_datetime, to_micros

LimitT = TypeVar("LimitT", int, float)

RAY = "ray"
"""The engine, and the provider of a run, that rents nothing: a Ray cluster."""


MLFLOW, WANDB = TRACKERS = ("mlflow", "wandb")
"""Experiment trackers: the keys of `track`, and the packages that must be installed."""


CLOSE = "close"
"""The placement of machines next to each other."""


class ProgramKind(StrEnum):
    """The kind of program that a job runs."""

    AGILEML = "agileml"
    """A trainer, which uses every machine there is and keeps going when one is evicted."""
    COMMAND = "command"
    """Any program that resumes from its own checkpoint."""


class Objective(StrEnum):
    """The aim of a plan; the names are those of Gavel's policies."""

    MIN_COST = "min-cost"
    MAX_THROUGHPUT = "max-throughput"
    MIN_COST_SLO = "min-cost-slo"
    """Needs a deadline."""
    MAKESPAN_WITHIN_BUDGET = "makespan-within-budget"
    """Needs a budget."""


@dataclass(frozen=True, slots=True)
class Range(Generic[LimitT]):
    """Numbers from `least` to `most`, both included; no upper limit if `most` is None."""

    least: LimitT
    most: LimitT | None = None

    def __contains__(self, value: float) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        """As it is written, without exponents.

        >>> str(Range(4, 64)), str(Range(7.5)), str(Range(8, 8))
        ('4..64', '7.5..', '8')
        """
        least, most = (
            None if end is None else f"{Decimal(str(end)):f}" for end in (self.least, self.most)
        )
        return f"{least}" if least == most else f"{least}..{most or ''}"


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a command: as many as `most`, and it goes on with any number from `least`."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.is_range else f"{self.least}"

    @property
    def is_range(self) -> bool:
        """Whether the command runs on different numbers of nodes."""
        return self.least < self.most


@dataclass(frozen=True, slots=True)
class Accelerators:
    """How many accelerators each machine has, of a model (any, if that is empty), of a memory size,
    or of both.
    """

    model: str
    count: Range[int]
    memory_gib: Range[float] | None = None
    """Of one accelerator."""


@dataclass(frozen=True, slots=True)
class WorkTime:
    """How long all machines of a job work for it, if they are of the type `on` and none is evicted;
    of a type that a plan names, if that is None. `left` is the share of it that an earlier run has
    left.
    """

    span: int
    on: str | None = None
    left: float = 1.0


@dataclass(frozen=True, slots=True)
class Within:
    """A deadline some time after the launch."""

    span: int

    def moment(self, now: int, _zone: tzinfo) -> int:
        """The deadline of a job that is launched now."""
        return now + self.span


@dataclass(frozen=True, slots=True)
class ByClock:
    """A deadline at the next such time of day."""

    hour: int
    minute: int

    def moment(self, now: int, zone: tzinfo) -> int:
        """The deadline, read in a time zone, of a job that is launched now."""
        here = to_datetime(now).astimezone(zone)
        today = here.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        # A day is added to the wall clock, not to the moment: days with a daylight-saving change
        # have other lengths.
        return to_micros(today if to_micros(today) > now else today + timedelta(days=1))


CPU = "cpu"
"""A core of a machine without accelerators."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Peak fp32 rate in TFLOP/s, and memory in GiB."""

    tflops: float
    memory_gib: float


ACCELERATOR_SPEEDS = {
    "M2050": DeviceSpeed(1.03, 3),
    "K520": DeviceSpeed(2.4, 4),
    "K80": DeviceSpeed(4.1, 12),
    "M60": DeviceSpeed(4.8, 8),
    "P4": DeviceSpeed(5.5, 8),
    "T4": DeviceSpeed(8.1, 16),
    "P100": DeviceSpeed(9.3, 16),
    "V100": DeviceSpeed(15.7, 16),
    "V100-32GB": DeviceSpeed(15.7, 32),
    "A100": DeviceSpeed(19.5, 40),
    "A100-80GB": DeviceSpeed(19.5, 80),
    "L4": DeviceSpeed(30.3, 24),
    "A10G": DeviceSpeed(31.2, 24),
    "H100": DeviceSpeed(67.0, 80),
    "L40S": DeviceSpeed(91.6, 48),
}
"""By the names of the catalog. A K80 and an M60 count as two, as clouds sell them."""
