"""Observed availability and lifetimes of machines that clouds preempt regardless of price."""

from dataclasses import dataclass

import numpy as np

from pricing_data.errors import BadInput
from pricing_data.series import Ints


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityTrace:
    """The number of machines that were up at each tick; ticks are `gap_seconds` apart."""

    name: str
    gap_seconds: int
    up: Ints

    def __post_init__(self) -> None:
        if self.gap_seconds <= 0:
            raise BadInput(f"availability trace {self.name}: gap_seconds is {self.gap_seconds}; it must be above 0")
        if self.up.size == 0 or int(self.up.min()) < 0:
            raise BadInput(f"availability trace {self.name}: it needs at least one tick, and no count below 0")
        self.up.setflags(write=False)

    def __len__(self) -> int:
        return int(self.up.size)

    @property
    def wanted(self) -> int:
        """The most machines that were ever up, taken as the number requested."""
        return int(self.up.max())

    @property
    def preemptions(self) -> int:
        """The number of preemptions; one that was replaced within a tick is not counted."""
        steps = np.diff(self.up)
        return int(-steps[steps < 0].sum())

    @property
    def machine_hours(self) -> float:
        return float(self.up[:-1].sum()) * self.gap_seconds / 3600


@dataclass(frozen=True, slots=True, order=True)
class Lifetime:
    """One machine's lifetime. It is censored (`preempted` is False) if its user ended it or it was still running."""

    cloud: str
    zone: str
    instance_type: str
    start: int
    seconds: float
    preempted: bool

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise BadInput(f"lifetime in {self.cloud}/{self.zone}: {self.seconds:g} seconds; it must be at least 0")
