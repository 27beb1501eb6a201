"""Which stage a job is in: one of its own choice, by the ratio of nodes, or learned from what its clocks take.

The papers set thresholds by hand and leave it open how to learn them. A policy is a value: it is told of each finished
clock and gives the policy to go on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from typing import ClassVar, Protocol, Self

from agileml.policies.report import Clocked, Footprint


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Transient to reliable nodes: above `second` stage 2, above `third` stage 3."""

    second: float = 1.0
    third: float = 15.0


def stage_of(footprint: Footprint, thresholds: Thresholds) -> int:
    """The stage for a footprint. Without reliable nodes there is nobody to serve from but the transient ones."""
    transient, reliable = len(footprint.transient), len(footprint.reliable)
    if not reliable:
        return 3
    ratio = transient / reliable
    if ratio <= thresholds.second:
        return 1
    return 2 if ratio <= thresholds.third else 3


@dataclass(frozen=True, slots=True)
class Observed:
    """A finished clock: its stage, the nodes, how long it took, what was sent. `quiet`: nothing happened meanwhile."""

    stage: int
    reliable: int
    transient: int
    seconds: float
    sums: Clocked
    quiet: bool = True

    @property
    def share(self) -> float:
        """How much of all traffic goes through reliable nodes, in or out.

        They serve and work in stage 1, keep copies and work in stage 2, and keep copies in stage 3.
        """
        served = self.sums.pushed + self.sums.pulled
        if not served:
            return 0.0
        working = served * self.reliable / max(1, self.reliable + self.transient)
        through = {1: served, 2: working + self.sums.backup, 3: self.sums.backup}[self.stage]
        return through / (served + (self.sums.backup if self.stage > 1 else 0))


Record = list[tuple[int, int, float]]
"""Mix of nodes, stage, machine-seconds of a clock; in the order in which they were learned."""


class StagePolicy(Protocol):
    """Says which stage to be in, and why, if that is not by a rule that everybody knows."""

    @property
    def why(self) -> str:
        """The reason of the latest decision; an empty string if none was taken."""
        ...

    def stage(self, footprint: Footprint) -> int:
        """The stage for nodes that can be given something."""
        ...

    def after(self, observed: Observed) -> StagePolicy:
        """The policy to go on with after a finished clock."""
        ...

    def record(self) -> Record:
        """What it has learned, for a controller that takes over."""
        ...

    def recalling(self, record: Record) -> StagePolicy:
        """The policy that knows what such a record says."""
        ...


class _Unlearned:
    """A policy that does not depend on what was."""

    __slots__ = ()
    why: ClassVar[str] = ""

    def after(self, observed: Observed) -> Self:  # noqa: ARG002 - as those that learn
        """Nothing is learned."""
        return self

    def record(self) -> Record:
        """Nothing was."""
        return []

    def recalling(self, record: Record) -> Self:  # noqa: ARG002 - as those that learn
        """There is nothing to recall."""
        return self


@dataclass(frozen=True, slots=True)
class Fixed(_Unlearned):
    """Always the same stage."""

    number: int

    def stage(self, footprint: Footprint) -> int:
        """The one; without nodes of one kind there is nobody to serve from but those of the other."""
        if not footprint.transient:
            return 1
        return self.number if footprint.reliable else 3


@dataclass(frozen=True, slots=True)
class ByRatio(_Unlearned):
    """By the number of transient nodes to a reliable one, as in the papers."""

    thresholds: Thresholds = field(default_factory=Thresholds)

    def stage(self, footprint: Footprint) -> int:
        """The stage of the ratio."""
        return stage_of(footprint, self.thresholds)


ALIKE = log(1.5)
"""Ratios of nodes that differ by less than this factor are taken for the same mix."""

Nodes = tuple[int, int]
"""Reliable, transient."""


def mix_of(nodes: Nodes) -> int:
    """Footprints with about the same ratio have the same mix."""
    reliable, transient = nodes
    return round(log(transient / reliable) / ALIKE)


@dataclass(frozen=True, slots=True)
class Learned:
    """Tries the stages next to the best one it knows for a mix of nodes, and keeps what is faster.

    It begins where the thresholds say. `why` is the reason of its latest decision. The first `skipped` clocks after a
    change tell of the change, not of the stage; the median of the `needed` quiet ones after them is the time of the
    stage, in machine-seconds, for this mix from then on.
    A neighbour is tried if it could pay: a higher stage while more than `relief` of the traffic goes through reliable
    nodes, which it would relieve; a lower one always. Another stage has to be faster by more than `gain`, a fraction.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    skipped: int = 2
    needed: int = 3
    gain: float = 0.03
    relief: float = 0.02
    nodes: Nodes = (0, 0)
    chosen: int = 0
    clocks: tuple[float, ...] = ()
    waits: int = 0
    known: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    why: str = ""

    def stage(self, footprint: Footprint) -> int:
        """What is tried or kept for this mix; for one not known yet, what the thresholds say."""
        nodes = len(footprint.reliable), len(footprint.transient)
        if 0 in nodes:
            return stage_of(footprint, self.thresholds)
        if self.chosen and 0 not in self.nodes and mix_of(nodes) == mix_of(self.nodes):
            return self.chosen
        times = self.known.get(mix_of(nodes))
        return self._best(times) if times else stage_of(footprint, self.thresholds)

    def after(self, observed: Observed) -> Learned:
        """Takes up a clock; decides once there are enough of them."""
        nodes = observed.reliable, observed.transient
        if nodes != self.nodes or observed.stage != self.chosen:
            return replace(self, nodes=nodes, chosen=observed.stage, clocks=(), waits=self.skipped)
        # Clocks that were told of at once, when a late report completed them, seem to have taken no time.
        if not observed.quiet or not observed.seconds or 0 in nodes:
            return self
        if self.waits:
            return replace(self, waits=self.waits - 1)
        clocks = (*self.clocks, observed.seconds * sum(nodes))
        if len(clocks) < self.needed:
            return replace(self, clocks=clocks)
        return self._decided(observed, median(clocks))

    def record(self) -> Record:
        """What is known, mix by mix."""
        return [(mix, stage, seconds) for mix, times in self.known.items() for stage, seconds in times.items()]

    def recalling(self, record: Record) -> Learned:
        """Knows what is recorded; what was being tried begins again."""
        known: dict[int, dict[int, float]] = {}
        for mix, stage, seconds in record:
            known.setdefault(mix, {})[stage] = seconds
        return replace(self, known=known)

    def _decided(self, observed: Observed, seconds: float) -> Learned:
        mix = mix_of(self.nodes)
        before = self.known.get(mix, {})
        times = {**before, self.chosen: seconds}
        best = self._best(times)
        untried = [stage for stage in self._neighbours(best, observed) if stage not in times]
        chosen = untried[0] if untried and best == self.chosen else best
        waits = self.skipped if chosen != self.chosen else 0
        why = self.why
        if chosen != self.chosen or self.chosen not in before:
            why = self._tried(chosen, observed) if chosen not in times else self._settled(times)
        return replace(self, known={**self.known, mix: times}, chosen=chosen, clocks=(), waits=waits, why=why)

    def _tried(self, stage: int, observed: Observed) -> str:
        if stage > self.chosen:
            return f"{observed.share:.0%} of the traffic goes through reliable nodes, which stage {stage} may relieve"
        return f"stage {stage} has not been tried with {observed.reliable}+{observed.transient} nodes"

    def _settled(self, times: Mapping[int, float]) -> str:
        told = [f"{seconds / sum(self.nodes):.3g} s in stage {stage}" for stage, seconds in sorted(times.items())]
        return f"an iteration takes {', '.join(told)}"

    def _neighbours(self, best: int, observed: Observed) -> list[int]:
        """Stages next to the best that could pay."""
        higher = [best + 1] if best < 3 and observed.share > self.relief else []
        return higher + ([best - 1] if best > 1 else [])

    def _best(self, times: Mapping[int, float]) -> int:
        """The fastest; of those that differ by less than the gain, the one that was known first."""
        best, *others = times
        for stage in others:
            if times[stage] < times[best] * (1 - self.gain):
                best = stage
        return best
