"""Policies that choose AgileML's stage: their contract, and a fixed, the papers' and a learned
choice.

The controller reports what happened, and the policy answers with proposals. A policy is an
immutable value that performs no action itself. The controller decides what to do with a proposal
and logs it, so that a run can be replayed without the policy. The papers choose by the ratio of
nodes, with thresholds set by hand, and leave learning them open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from typing import Any, Protocol, Self, cast

from agileml.errors import BadArgument, check_number


@dataclass(slots=True)
class ClockSums:
    """Sums of the nodes' reports about one clock: chunks, seconds of work, bytes sent, and the loss
    over the sample.

    `helped_items` were done by other workers than their owners, in `helped_seconds`. `moved_bytes`
    of partitions changed their server, during `suspended_seconds` in which a partition was under
    way. `waited_for` workers were awaited (0: all), and `dropped_chunks` of the others left out;
    the shards that have counted least and most often so far have done so `least_counted` and
    `most_counted` times as often as the mean of all.
    """

    chunks: int = 0
    seconds: float = 0.0
    pushed: int = 0
    pulled: int = 0
    backup: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    helped_items: int = 0
    helped_seconds: float = 0.0
    moved_bytes: int = 0
    suspended_seconds: float = 0.0
    waited_for: int = 0
    dropped_chunks: int = 0
    least_counted: float = 1.0
    most_counted: float = 1.0


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The number of active nodes of each kind; the first report of a job is one of these."""

    reliable: int
    transient: int


@dataclass(frozen=True, slots=True)
class ClockFinished:
    """A finished clock: its stage, nodes, seconds and sums. `quiet`: nothing moved, failed or
    joined during it.

    `partitions` are those of the parameters: as many machines serve at most.
    """

    stage: int
    reliable: int
    transient: int
    seconds: float
    sums: ClockSums
    quiet: bool = True
    partitions: int = 1

    @property
    def reliable_share(self) -> float:
        """Fraction of all traffic that reliable nodes send or receive.

        They serve and work in stage 1, keep backups and work in stage 2, and keep backups in stage
        3.
        """
        served = self.sums.pushed + self.sums.pulled
        if not served:
            return 0.0
        working = served * self.reliable / max(1, self.reliable + self.transient)
        through = {1: served, 2: working + self.sums.backup, 3: self.sums.backup}[self.stage]
        return through / (served + (self.sums.backup if self.stage > 1 else 0))

    def seconds_in(self, stage: int) -> float:
        """Estimated seconds of this clock in another stage, if the time besides computing grows
        with the bytes that the busiest machine sends and receives.

        Where little travels, the estimate is too high: but there no stage is much faster than
        another.
        """
        workers = self._workers(self.stage)
        waiting = max(0.0, self.seconds - self.sums.seconds / workers)
        here = self._busiest(self.stage)
        if not here:
            return self.seconds
        return self.seconds + waiting * (self._busiest(stage) / here - 1)

    def _busiest(self, stage: int) -> float:
        """Bytes that the machine with most of them sends and receives in a clock."""
        served = self.sums.pushed + self.sums.pulled
        worked = served / self._workers(stage)
        if stage == 1:
            return worked + served / max(1, min(self.reliable, self.partitions))

        backup = self.sums.backup
        keeping = backup / max(1, self.reliable) + (worked if stage == 2 else 0)
        return max(
            keeping, worked + (served + backup) / max(1, min(self.transient, self.partitions))
        )

    def _workers(self, stage: int) -> int:
        return max(1, self.transient + (0 if stage == 3 else self.reliable))


TrainingReport = NodesChanged | ClockFinished


@dataclass(frozen=True, slots=True)
class UseStage:
    """Run in this stage. `reason` is empty unless the policy has just made a decision worth
    logging.
    """

    stage: int
    reason: str = ""


class TrainingPolicy(Protocol):
    """An immutable policy."""

    def observe(self, report: TrainingReport) -> tuple[TrainingPolicy, tuple[UseStage, ...]]:
        """The policy that has seen this report, and what it proposes now."""
        ...

    def record(self) -> list[Any]:
        """The policy's knowledge as plain JSON, for the controller that takes over after a
        failure."""
        ...

    def restored(self, record: list[Any]) -> TrainingPolicy:
        """The policy with what a record says, which may have been through JSON."""
        ...


NodeCounts = tuple[int, int]
"""Reliable nodes, transient nodes."""

LearnedTimes = list[tuple[int, int, float]]
"""Mix of nodes, stage and machine-seconds of a clock, in the order in which they were learned."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Ratios of transient to reliable nodes: above `second` stage 2, above `third` stage 3."""

    second: float = 1.0
    third: float = 15.0

    def __post_init__(self) -> None:
        check_number("threshold of stage 2", self.second, 0.0, finite=False)
        check_number("threshold of stage 3", self.third, self.second, finite=False)


def stage_of(nodes: NodeCounts, thresholds: Thresholds) -> int:
    """The stage by ratio. Without reliable nodes only transient nodes can serve, which is stage
    3."""
    reliable, transient = nodes
    if not reliable:
        return 3
    ratio = transient / reliable
    if ratio <= thresholds.second:
        return 1
    return 2 if ratio <= thresholds.third else 3


class _Memoryless(ABC):
    """Shared by policies that depend on the current nodes only."""

    __slots__ = ()

    @abstractmethod
    def _stage(self, nodes: NodeCounts) -> int:
        """The stage for these nodes."""

    def observe(self, report: TrainingReport) -> tuple[Self, tuple[UseStage, ...]]:
        """Proposes the stage for the current nodes."""
        use_stage = UseStage(self._stage((report.reliable, report.transient)))
        return self, (use_stage,)

    def record(self) -> LearnedTimes:
        """Empty: nothing is learned."""
        return []

    def restored(self, record: LearnedTimes) -> Self:  # noqa: ARG002 - the contract of every policy
        """Unchanged: nothing was learned."""
        return self


STAGES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class FixedStage(_Memoryless):
    """One stage, as far as the nodes allow: without transient nodes stage 1, without reliable nodes
    stage 3.
    """

    number: int

    def _stage(self, nodes: NodeCounts) -> int:
        reliable, transient = nodes
        if not transient:
            return 1
        return self.number if reliable else 3


@dataclass(frozen=True, slots=True)
class StageByRatio(_Memoryless):
    """The stage by the number of transient nodes per reliable node, as in the papers."""

    thresholds: Thresholds = field(default_factory=Thresholds)

    def _stage(self, nodes: NodeCounts) -> int:
        return stage_of(nodes, self.thresholds)


SAME_MIX = log(1.5)
"""Ratios of transient to reliable nodes that differ by less than this factor count as the same
mix."""


def mix_of(nodes: NodeCounts) -> int:
    """A number that is the same for all nodes of about the same ratio."""
    reliable, transient = nodes
    return round(log(transient / reliable) / SAME_MIX)


@dataclass(frozen=True, slots=True)
class LearnedStage:
    """Tries the stages next to the best known stage for a mix of nodes, and keeps the fastest.

    The thresholds give the first stage. The first `skipped` clocks after a change measure the
    change rather than the stage; the median of the next `needed` quiet clocks, in machine-seconds,
    is then the time of the stage for this mix. A lower stage is not tried if by the measured
    traffic it would take `hopeless` times as long as the best; a higher stage only while reliable
    nodes carry more than the fraction `relief` of the traffic, which it would take off them. A
    stage counts as faster if it is faster by more than the fraction `gain`. A trial ends at once if
    a clock, except the first, takes `hopeless` times as long as in the best stage. `why` is the
    reason of the latest decision.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    skipped: int = 2
    needed: int = 3
    gain: float = 0.03
    relief: float = 0.02
    hopeless: float = 1.5
    nodes: NodeCounts = (0, 0)
    chosen: int = 0
    clocks: tuple[float, ...] = ()
    waits: int = 0
    known: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    why: str = ""

    def observe(self, report: TrainingReport) -> tuple[LearnedStage, tuple[UseStage, ...]]:
        """Learns from finished clocks; proposes the stage for the current nodes."""
        after = self._learn(report) if isinstance(report, ClockFinished) else self
        reason = after.why if after.why != self.why else ""
        use_stage = UseStage(after._stage((report.reliable, report.transient)), reason)
        return after, (use_stage,)

    def record(self) -> LearnedTimes:
        """The known times of all mixes."""
        return [
            (mix, stage, seconds)
            for mix, times in self.known.items()
            for stage, seconds in times.items()
        ]

    def restored(self, record: LearnedTimes) -> LearnedStage:
        """Knows the recorded times; a trial that was in progress starts again."""
        known: dict[int, dict[int, float]] = {}
        for mix, stage, seconds in record:
            known.setdefault(mix, {})[stage] = seconds
        return replace(self, known=known)

    def _stage(self, nodes: NodeCounts) -> int:
        """The stage on trial or chosen for this mix; the thresholds' stage for an unknown mix."""
        if 0 in nodes:
            return stage_of(nodes, self.thresholds)
        if self.chosen and 0 not in self.nodes and mix_of(nodes) == mix_of(self.nodes):
            return self.chosen
        times = self.known.get(mix_of(nodes))
        if times:
            return self._best(times)
        return stage_of(nodes, self.thresholds)

    def _learn(self, clock: ClockFinished) -> LearnedStage:
        nodes = clock.reliable, clock.transient
        if nodes != self.nodes or clock.stage != self.chosen:
            return replace(self, nodes=nodes, chosen=clock.stage, clocks=(), waits=self.skipped)

        # Clocks that were completed together by one late report seem to have taken no time.
        if not clock.quiet or not clock.seconds or 0 in nodes:
            return self

        taken = clock.seconds * sum(nodes)
        times = self.known.get(mix_of(self.nodes), {})
        if (
            self.waits <= 1
            and times
            and self.chosen not in times
            and taken > self.hopeless * min(times.values())
        ):
            # The stage on trial is so much slower than a known one that no more clocks are spent on
            # it.
            return self._decide(clock, taken)
        if self.waits:
            return replace(self, waits=self.waits - 1)

        clocks = (*self.clocks, taken)
        if len(clocks) < self.needed:
            return replace(self, clocks=clocks)
        return self._decide(clock, median(clocks))

    def _decide(self, clock: ClockFinished, seconds: float) -> LearnedStage:
        mix = mix_of(self.nodes)
        before = self.known.get(mix, {})
        times = {**before, self.chosen: seconds}
        best = self._best(times)

        # Stages next to the best one that could be faster.
        near = [best + 1] if best < 3 and clock.reliable_share > self.relief else []
        if best > 1 and clock.seconds_in(best - 1) < self.hopeless * clock.seconds:
            near.append(best - 1)
        untried = [stage for stage in near if stage not in times]
        chosen = untried[0] if untried and best == self.chosen else best
        waits = self.skipped if chosen != self.chosen else 0
        why = self.why
        if chosen != self.chosen or self.chosen not in before:
            why = self._reason(chosen, times, clock)

        return replace(
            self, known={**self.known, mix: times}, chosen=chosen, clocks=(), waits=waits, why=why
        )

    def _reason(self, chosen: int, times: Mapping[int, float], clock: ClockFinished) -> str:
        """Why a stage is tried that has no time yet, or why one of those with a time is chosen."""
        if chosen not in times and chosen > self.chosen:
            share = f"{clock.reliable_share:.0%}"
            return (
                f"{share} of the traffic goes through reliable nodes, which stage {chosen} may "
                "relieve"
            )
        if chosen not in times:
            return (
                f"stage {chosen} has not been tried with {clock.reliable}+{clock.transient} nodes"
            )

        measured = [
            f"{seconds / sum(self.nodes):.3g} s in stage {stage}"
            for stage, seconds in sorted(times.items())
        ]
        lower = clock.stage - 1

        if self._best(times) == clock.stage and lower not in (0, *times):
            measured.append(
                f"and would take {clock.seconds_in(lower):.3g} s in stage {lower} by its traffic"
            )

        return f"an iteration takes {', '.join(measured)}"

    def _best(self, times: Mapping[int, float]) -> int:
        """The fastest stage; among stages that differ by less than `gain`, the one that was
        measured first.
        """
        best, *others = times
        for stage in others:
            if times[stage] < times[best] * (1 - self.gain):
                best = stage
        return best


def stage_policy(choice: object) -> TrainingPolicy:
    """The policy for `auto`, which learns the stage, or for the number of a stage; a policy stays
    as it is.
    """
    if choice == "auto":
        return LearnedStage()
    if str(choice) in map(str, STAGES) and not isinstance(choice, float):
        return FixedStage(int(str(choice)))
    if all(callable(getattr(choice, method, None)) for method in ("observe", "record", "restored")):
        return cast("TrainingPolicy", choice)
    raise BadArgument(f"stage is {choice!r}; it must be auto, 1, 2 or 3, or a policy")
