"""The job that is replayed, and what starting, moving and probing cost it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bidbrain.backtest.regions.record import Floats, ZonesRecord
from pricing_data.units import MINUTE


@dataclass(frozen=True, slots=True)
class Moving:
    """Dollars per GB for taking a checkpoint from one region to another, by pair where a pair has its own price."""

    usd_per_gb: float = 0.02
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    within_region: float = 0.0
    time: int = 0

    def usd(self, regions: tuple[str, ...], gb: float) -> Floats:
        """The cost of a move from zone to zone."""
        return np.array(
            [[gb * self._per_gb(a, b) * (i != j) for j, b in enumerate(regions)] for i, a in enumerate(regions)]
        )

    def _per_gb(self, source: str, target: str) -> float:
        if source == target:
            return self.within_region
        return self.pairs.get(frozenset((source, target)), self.usd_per_gb)


@dataclass(frozen=True, slots=True)
class RegionJob:
    """Times in microseconds. `machines` are wanted at once; the job works with `at_least` of them."""

    work: int
    deadline: int
    delay: int
    checkpoint_gb: float = 0.0
    machines: int = 1
    at_least: int = 1

    def steps(self, gap: int) -> int:
        """Whole steps until the deadline. Written hours are rounded, so a step that is nearly whole counts."""
        nearest = round(self.deadline / gap)
        return nearest if abs(nearest * gap - self.deadline) < gap // 100 else self.deadline // gap

    def possible(self, gap: int) -> bool:
        """Whether on-demand machines from the first step meet the deadline."""
        return self.steps(gap) * gap >= self.work + self.delay


@dataclass(frozen=True, slots=True)
class Rules:
    """`published` replays the quirks of the published simulator: the last step is not billed."""

    published: bool = False
    moving: Moving = field(default_factory=Moving)
    probe: int = MINUTE


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A job from one start of a record. `record` has only the window's steps, `before` those before them."""

    record: ZonesRecord
    before: ZonesRecord
    job: RegionJob
    rules: Rules
    start: int

    @classmethod
    def of(cls, record: ZonesRecord, start: int, job: RegionJob, rules: Rules) -> "Window":
        return cls(record.window(start, job.steps(record.gap)), record.window(0, start), job, rules, start)

    def only(self, zone: str) -> "Window":
        """Restricts the window to a single zone."""
        return replace(self, record=self.record.only([zone]), before=self.before.only([zone]))

    @property
    def moving(self) -> Floats:
        """Dollars of a move from zone to zone."""
        return self.rules.moving.usd(self.record.regions, self.job.checkpoint_gb)
