"""Who takes part in a job, and how far each node has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from agileml.errors import InvalidTransition


class Phase(Enum):
    """The life of a node."""

    LOADING = "loading"
    READY = "ready"
    ACTIVE = "active"
    LEAVING = "leaving"
    """Warned: gives away what it holds."""
    DRAINING = "draining"
    """Holds nothing; sees that nothing is under way."""
    GONE = "gone"
    DEAD = "dead"


_NEXT = {
    Phase.LOADING: {Phase.READY, Phase.GONE, Phase.DEAD},
    Phase.READY: {Phase.ACTIVE, Phase.GONE, Phase.DEAD},
    Phase.ACTIVE: {Phase.LEAVING, Phase.GONE, Phase.DEAD},
    Phase.LEAVING: {Phase.DRAINING, Phase.GONE, Phase.DEAD},
    Phase.DRAINING: {Phase.GONE, Phase.DEAD},
    Phase.GONE: set(),
    Phase.DEAD: set(),
}

OUT = (Phase.GONE, Phase.DEAD)
KNOWN_OUT = 256

IN_EPOCH = (Phase.ACTIVE, Phase.LEAVING, Phase.DRAINING)
"""Phases in which a node hears of epochs and routes."""


@dataclass(slots=True)
class Member:
    """A node; `rank` counts nodes in the order in which they came, `heard` is when it last said anything."""

    name: str
    reliable: bool
    rank: int
    heard: float
    phase: Phase = Phase.LOADING
    routed: int = -1


@dataclass(slots=True)
class Members:
    """The nodes of a job in the order in which they came; then those that went out last, in the order in which they
    did: some speak up late, or are told of again."""

    _all: dict[str, Member] = field(default_factory=dict)
    _came: int = 0

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all.values())

    def __getitem__(self, name: str) -> Member:
        return self._all[name]

    def get(self, name: str) -> Member | None:
        """The node of this name, if it ever was there."""
        return self._all.get(name)

    def join(self, name: str, reliable: bool, now: float) -> Member:
        """A node comes; names are never used twice."""
        if name in self._all:
            raise InvalidTransition(f"{name} joined before; a node that comes back needs another name")
        self._all[name] = Member(name, reliable, self._came, now)
        self._came += 1
        return self._all[name]

    def turn(self, name: str, phase: Phase) -> None:
        """A node enters the next phase of its life."""
        member = self._all[name]
        if phase not in _NEXT[member.phase]:
            raise InvalidTransition(f"{name} cannot go from {member.phase.value} to {phase.value}")
        member.phase = phase
        if phase in OUT:
            self._all[name] = self._all.pop(name)
            for forgotten in self.names(*OUT)[:-KNOWN_OUT]:
                del self._all[forgotten]

    def names(self, *phases: Phase) -> list[str]:
        """Names of nodes in these phases, in the order in which they came."""
        return [member.name for member in self if member.phase in phases]

    def alive(self, name: str) -> bool:
        """Whether a node takes part in the epoch."""
        member = self._all.get(name)
        return member is not None and member.phase in IN_EPOCH

    def stays(self, name: str) -> bool:
        """Whether a node would take part in the next epoch, if it began now."""
        member = self._all.get(name)
        return member is not None and member.phase in (Phase.ACTIVE, Phase.LEAVING)

    def usable(self, *, reliable: bool) -> list[str]:
        """Active nodes of one kind, longest running first."""
        return [m.name for m in self if m.phase is Phase.ACTIVE and m.reliable is reliable]
