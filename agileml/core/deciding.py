"""Which contributions make up a clock: all, or those that had arrived when enough workers were
done.

Every decision is final and recorded: a clock that is repeated after a rollback is made of the same
chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

from agileml.policies.dbw import ClockBegins, GradientArrived, GradientsSummed, WaitPolicy
from agileml.protocol.messages import Contributed, GradientSums, PartitionProgress, WorkDone
from agileml.work import FINGERPRINT_MASK, Accepted, ClockCovers, Coverage, WorkPlan


@dataclass(frozen=True, slots=True)
class ClockDecision:
    """The chunks of a clock, and how many workers were awaited for it."""

    accepted: Accepted
    waited_for: int

    def line(self) -> list[Any]:
        """As plain JSON, for the controller that takes over."""
        return [self.accepted.clock, self.waited_for, self.accepted.covers]


@dataclass(slots=True)
class OpenClock:
    """The next clock, as far as it has arrived. `missing`: the chunks that have not, by place."""

    missing: dict[int, int]
    arrived: Coverage = field(default_factory=Coverage)
    wait_for: int = 0
    """Workers to wait for; 0: the clock has not begun."""
    began: float | None = None
    seen: int = 0
    """Workers whose arrival the policy has seen."""
    owed: bool = False
    """Whether the clock waited longer than the policy asked for, because a shard has counted too
    little."""


@dataclass(slots=True)
class Decisions:
    """The decisions so far, and what has arrived of the next clock. Without a policy every chunk
    counts.
    """

    plan: WorkPlan
    policy: WaitPolicy | None
    decided: dict[int, ClockDecision] = field(default_factory=dict)
    repeated: int = 0
    """The last clock that was decided when the epoch began."""
    notes: list[str] = field(default_factory=list)
    """Lines for the log: reasons that the policy gave for its proposals, and warnings about
    shares."""
    shares: ShardShares = field(init=False)
    _open: OpenClock = field(default_factory=lambda: OpenClock({}))
    _waited: int = 0
    _workers: int = 1
    _sums: dict[int, dict[int, GradientSums]] = field(default_factory=dict)
    """By clock and partition."""

    def __post_init__(self) -> None:
        if self.policy is not None:
            self.plan = self.plan.rotating()
        self.shares = ShardShares(self.plan)

    @property
    def clock(self) -> int:
        """The next clock to decide."""
        return len(self.decided) + 1

    def accepted(self, clock: int) -> Accepted:
        """The chunks of a clock."""
        if self.policy is None:
            return self.plan.accept_all(clock)
        return self.decided[clock].accepted

    def waited_for(self, clock: int) -> int:
        """How many workers were awaited; 0 without a policy."""
        if self.policy is None:
            return 0
        return self.decided[clock].waited_for

    def dropped(self, clock: int) -> int:
        """Number of chunks of a clock that were left out."""
        if self.policy is None:
            return 0
        return self.plan.accept_all(clock).chunks - self.accepted(clock).chunks

    def after(self, clock: int) -> tuple[ClockCovers, ...]:
        """The decisions about later clocks, for nodes that repeat them or join."""
        return tuple((at, self.decided[at].accepted.covers) for at in range(clock + 1, self.clock))

    def tally(self, clock: int) -> tuple[int, int]:
        """Number and fingerprint of all chunks up to a clock, by which versions are checked."""
        counted = [self.accepted(at) for at in range(1, clock + 1)]
        fingerprint = sum(accepted.fingerprint for accepted in counted) & FINGERPRINT_MASK
        return sum(accepted.chunks for accepted in counted), fingerprint

    def restore(self, lines: Iterable[Sequence[Any]]) -> None:
        """Takes over the decisions of an earlier controller, whose lines may have been through
        JSON."""
        self.decided = {}
        for clock, waited_for, covers in lines:
            accepted = Accepted(clock, tuple((place, first, last) for place, first, last in covers))
            self.decided[clock] = ClockDecision(accepted, waited_for)
        for decision in self.decided.values():
            self.shares.add(decision.accepted)
        self.roll_back()

    def roll_back(self) -> None:
        """Workers will say again what they have done of the clock that is not decided."""
        self.repeated = len(self.decided)
        self._sums.clear()
        self._turn()

    def _turn(self) -> None:
        clock = self.clock
        self._open = OpenClock(
            {place: self.plan.chunks(place, clock) for place in range(len(self.plan.lengths))}
        )

    def is_late(self, done: WorkDone, epoch: int) -> bool:
        """Whether work was reported when its clock had been decided without it."""
        return (
            self.policy is not None
            and done.epoch == epoch
            and self.repeated < done.clock < self.clock
        )

    def add_contribution(self, message: Contributed) -> None:
        """Chunks are on their way to the servers."""
        if message.clock != self.clock:
            return

        self._open.arrived.add(message.covers)
        missing = self._open.missing
        for place, first, last in message.covers:
            missing[place] -= last - first
            if not missing[place]:
                del missing[place]

    def add_sums(self, progress: PartitionProgress, partitions: int) -> None:
        """A partition of the next version is complete; the policy sees the sums of all partitions
        together.
        """
        clock = progress.clock
        sums = progress.sums
        if self.policy is None or sums is None or clock <= self.repeated:
            return

        parts = self._sums.setdefault(clock, {})
        parts[progress.partition] = sums
        if len(parts) < partitions:
            return

        del self._sums[clock]
        decided = self.decided[clock].accepted
        before = self.decided.get(clock - 1)
        seen = measured(
            self.plan,
            decided,
            list(parts.values()),
            self._workers,
            None if before is None else before.accepted,
        )

        if seen is not None:
            self.policy = self.policy.observe(seen)[0]

    def next(self, reached: int, workers: Sequence[str], now: float) -> ClockDecision | None:
        """Decides the next clock, if enough has arrived. `reached` is the last version of all
        partitions.
        """
        if self.policy is None or reached < self.clock - 1:
            return None

        names = set(workers)
        coming = self._open
        if not coming.wait_for:
            self._begin(coming, len(names), now)
        late = {workers[place] for place in coming.missing}
        arrived = len(names) - len(late)
        for number in range(coming.seen + 1, arrived + 1):
            if coming.began is not None:
                # The workers start a job together, as after a clock that waited for all.
                waited = self._waited or self._workers
                seen = GradientArrived(waited, number, now - coming.began)
                self.policy = self.policy.observe(seen)[0]

        coming.seen = max(coming.seen, arrived)
        wanted = min(coming.wait_for, len(names))
        covers = coming.arrived.covers()
        if arrived < wanted or (coming.missing and not self.plan.cover_items(self.clock, covers)):
            return None
        if self.shares.owes(coming.missing, self.clock):
            coming.owed = True
            return None

        decided = ClockDecision(Accepted(self.clock, covers), arrived if coming.owed else wanted)
        self._waited = decided.waited_for
        warning = self.shares.add(decided.accepted)
        if warning:
            self.notes.append(warning)
        self.decided[self.clock] = decided
        self._turn()

        return decided

    def _begin(self, coming: OpenClock, workers: int, now: float) -> None:
        assert self.policy is not None
        # The times of work that was done before a rollback say nothing.
        coming.began = None if coming.arrived.chunks else now
        self._workers = workers
        self.policy, proposals = self.policy.observe(ClockBegins(self.clock, workers, self._waited))

        for proposal in proposals:
            coming.wait_for = max(1, proposal.gradients)
            if proposal.reason:
                self.notes.append(f"backup workers {proposal.reason}")


def measured(
    plan: WorkPlan,
    accepted: Accepted,
    parts: Sequence[GradientSums],
    workers: int,
    before: Accepted | None = None,
) -> GradientsSummed | None:
    """The size of the mean gradient of a clock, and the spread of one worker's, from the sums of
    all partitions.

    Contributions may be of different sizes: each one is an estimate of the gradient whose variance
    is inverse to its items. All figures are in the unit of updates. `before` is the clock before.
    """
    contributions = parts[0].contributions
    items = plan.cover_items(accepted.clock, accepted.covers)
    whole = plan.cover_items(accepted.clock, plan.accept_all(accepted.clock).covers)
    weighted = sum(part.weighted_squares for part in parts)
    if not items or not isfinite(weighted):
        return None

    square = sum(part.square for part in parts) / items**2
    gradients = items * workers / whole
    spread = None
    if contributions > 1:
        spread = max(0.0, weighted - square * items) / (contributions - 1) * workers / whole
    along = [part.along for part in parts if part.along is not None]
    earlier = 0 if before is None else plan.cover_items(before.clock, before.covers)
    known = bool(earlier) and len(along) == len(parts) and isfinite(sum(along))

    return GradientsSummed(
        accepted.clock, gradients, square, spread, sum(along) / items / earlier if known else None
    )


TOLERANCE = 0.2
"""How far the clocks in which a shard counted may be from the mean of all shards, as a part of that
mean."""

CHANCE = 3.0
"""How far they may be besides, as long as that is more: in standard deviations of a number of rare
events."""


class ShardShares:
    """By shard, in how many clocks it has counted; of a clock in which a part of it counted, that
    part.
    """

    def __init__(self, plan: WorkPlan) -> None:
        self.plan = plan
        self.counted = [0.0] * len(plan.lengths)
        self._outside = False

    @property
    def mean(self) -> float:
        """The mean of all shards."""
        return sum(self.counted) / len(self.counted)

    def add(self, accepted: Accepted) -> str:
        """Counts a clock; returns a warning if a shard is out of bounds for the first time since
        all were within.
        """
        for place, first, last in accepted.covers:
            part = (last - first) / self.plan.chunks(place, accepted.clock)
            self.counted[self.plan.shard_at(place, accepted.clock)] += part

        mean = self.mean
        outside = self._outside
        # No shard can count too little: the clock would have waited for it (`owes`).
        most = max(range(len(self.counted)), key=self.counted.__getitem__)
        self._outside = self.counted[most] - mean > _allowed(mean) + 1
        if outside or not self._outside:
            return ""

        return (
            f"warning: shard {most} has counted {self.counted[most] / mean:.2f} times as often as "
            "the average"
            " shard, which biases the model towards it: backup workers skip the work of others too "
            "often; let them skip less, or turn them off"
        )

    def owes(self, places: Iterable[int], clock: int) -> bool:
        """Whether one of these places has a shard that might be out of bounds if the clock left it
        out.
        """
        least = self.mean + 1 - _allowed(self.mean + 1)
        return any(self.counted[self.plan.shard_at(place, clock)] < least for place in places)

    def extremes(self) -> tuple[float, float]:
        """How often the shards that have counted least and most have done so, relative to the mean
        of all shards.
        """
        mean = self.mean
        if mean:
            return (min(self.counted) / mean, max(self.counted) / mean)
        return (1.0, 1.0)


def _allowed(mean: float) -> float:
    return max(TOLERANCE * mean, CHANCE * sqrt(mean))
