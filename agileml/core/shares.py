"""How much of each shard has counted so far, in a job whose clocks may end without late work.

Shards rotate, so a machine that is always slow costs all of them alike, and what chance does evens out. Nothing
guarantees that, though: a shard could always be with the machine that happens to be slow. So a clock is not decided
without a shard that would count too little.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt

from agileml.work.covers import Accepted
from agileml.work.plan import WorkPlan

TOLERANCE = 0.2
"""How far the clocks in which a shard counted may be from the mean of all shards, as a part of that mean."""

CHANCE = 3.0
"""How far they may be besides, as long as that is more: in standard deviations of a number of rare events."""


@dataclass(slots=True)
class ShardShares:
    """By shard, in how many clocks it has counted; of a clock in which a part of it counted, that part."""

    plan: WorkPlan
    counted: list[float] = field(init=False)
    _outside: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.counted = [0.0] * len(self.plan.lengths)

    @property
    def mean(self) -> float:
        """The mean of all shards."""
        return sum(self.counted) / len(self.counted)

    def add(self, accepted: Accepted) -> str:
        """Counts a clock; returns a warning if a shard is out of bounds for the first time since all were within."""
        for place, first, last in accepted.covers:
            part = (last - first) / self.plan.chunks(place, accepted.clock)
            self.counted[self.plan.shard_at(place, accepted.clock)] += part
        return self._warning()

    def owes(self, places: Iterable[int], clock: int) -> bool:
        """Whether one of these places has a shard that might be out of bounds if the clock left it out."""
        least = self.mean + 1 - _allowed(self.mean + 1)
        return any(self.counted[self.plan.shard_at(place, clock)] < least for place in places)

    def extremes(self) -> tuple[float, float]:
        """How often the shards that have counted least and most have done so, relative to the mean of all shards."""
        mean = self.mean
        return (min(self.counted) / mean, max(self.counted) / mean) if mean else (1.0, 1.0)

    def _warning(self) -> str:
        mean, outside = self.mean, self._outside
        # No shard can count too little: the clock would have waited for it (`owes`).
        most = max(range(len(self.counted)), key=self.counted.__getitem__)
        self._outside = self.counted[most] - mean > _allowed(mean) + 1
        if outside or not self._outside:
            return ""
        return (
            f"warning: shard {most} has counted {self.counted[most] / mean:.2f} times as often as the average"
            " shard, which biases the model towards it: backup workers skip the work of others too often; let them skip"
            " less, or turn them off"
        )


def _allowed(mean: float) -> float:
    return max(TOLERANCE * mean, CHANCE * sqrt(mean))
