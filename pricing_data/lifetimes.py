"""What was observed about machines that a cloud takes back whatever the price: availability, and lives that ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing_data.errors import BadInput
from pricing_data.series import Ints


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityTrace:
    """How many of `wanted` machines were up at each tick; ticks are `gap_seconds` apart."""

    name: str
    gap_seconds: int
    up: Ints

    def __post_init__(self) -> None:
        if self.gap_seconds <= 0:
            raise BadInput(f"availability trace {self.name}: a gap of {self.gap_seconds} seconds is not above 0")
        if self.up.size == 0 or int(self.up.min()) < 0:
            raise BadInput(f"availability trace {self.name}: needs at least one tick, and counts of at least 0")
        self.up.setflags(write=False)

    def __len__(self) -> int:
        return int(self.up.size)

    @property
    def wanted(self) -> int:
        """The most machines that were ever up: what was asked for, as far as the trace shows it."""
        return int(self.up.max())

    @property
    def preemptions(self) -> int:
        """How many machines were taken back, tick by tick; one that went and came within a tick is not seen."""
        steps = np.diff(self.up)
        return int(-steps[steps < 0].sum())

    @property
    def machine_hours(self) -> float:
        """How long machines were up, all together."""
        return float(self.up[:-1].sum()) * self.gap_seconds / 3600


@dataclass(frozen=True, slots=True, order=True)
class Lifetime:
    """One machine's life. `preempted` is False where it was ended by its user or still ran: the life is censored."""

    cloud: str
    zone: str
    instance_type: str
    start: int
    seconds: float
    preempted: bool

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise BadInput(f"lifetime in {self.cloud}/{self.zone}: {self.seconds:g} seconds are below 0")
