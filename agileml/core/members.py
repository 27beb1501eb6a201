"""The nodes of a job and the phase of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agileml.core.events import NodeLost, NodeRules, StopJob
from agileml.errors import InvalidTransition
from agileml.protocol.actions import JOB_LOOP
from agileml.protocol.messages import UNKNOWN_STEP, Heartbeat, Warned


class NodePhase(Enum):
    """The phases of a node."""

    LOADING = "loading"
    READY = "ready"
    ACTIVE = "active"
    LEAVING = "leaving"
    """Warned of its eviction: gives away what it holds."""
    DRAINING = "draining"
    """Holds nothing; makes sure that no message is in flight."""
    GONE = "gone"
    DEAD = "dead"


_NEXT = {
    NodePhase.LOADING: {NodePhase.READY, NodePhase.GONE, NodePhase.DEAD},
    NodePhase.READY: {NodePhase.ACTIVE, NodePhase.GONE, NodePhase.DEAD},
    NodePhase.ACTIVE: {NodePhase.LEAVING, NodePhase.GONE, NodePhase.DEAD},
    NodePhase.LEAVING: {NodePhase.DRAINING, NodePhase.GONE, NodePhase.DEAD},
    NodePhase.DRAINING: {NodePhase.GONE, NodePhase.DEAD},
    NodePhase.GONE: set(),
    NodePhase.DEAD: set(),
}

_AFTER_WARNING = {
    NodePhase.LOADING: NodePhase.GONE,
    NodePhase.READY: NodePhase.GONE,
    NodePhase.ACTIVE: NodePhase.LEAVING,
}
"""A node in another phase is on its way out already."""

OUT = (NodePhase.GONE, NodePhase.DEAD)

MAX_OUT = 256
"""Nodes that are out and still known, at most."""

IN_EPOCH = (NodePhase.ACTIVE, NodePhase.LEAVING, NodePhase.DRAINING)
"""Phases in which a node receives epochs and routes."""


FIRST_BEAT_SECONDS = 10.0
"""Time for the first heartbeat of a node that has just started: its process connects by itself."""

RETURN_SECONDS = 4.0
"""Time for the next heartbeat of a node that an earlier controller knew: it tries to reach this one
twice a second."""


@dataclass(slots=True)
class Member:
    """A node; `rank` is its place in the order of joining, `last_heard` the time of its latest
    message.

    `grace`: seconds that it has for the first heartbeat which this controller receives, even if
    others come faster.
    """

    name: str
    reliable: bool
    rank: int
    last_heard: float
    phase: NodePhase = NodePhase.LOADING
    routed: int = -1
    grace: float = FIRST_BEAT_SECONDS


@dataclass(slots=True)
class Members:
    """The nodes of a job in the order of joining, followed by the latest that are out, in the order
    of leaving.

    Nodes that are out are still known because late messages name them. `changes` counts changes of
    phase, `joined` all nodes that ever joined, `evictions` those that were warned in time,
    `failures` those that were lost.
    """

    changes: int = 0
    joined: int = 0
    evictions: int = 0
    failures: int = 0
    _all: dict[str, Member] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all.values())

    def __getitem__(self, name: str) -> Member:
        return self._all[name]

    def get(self, name: str) -> Member | None:
        """The node of this name, unless it never joined or was forgotten."""
        return self._all.get(name)

    def join(self, name: str, reliable: bool, now: float) -> Member:
        """Adds a node; InvalidTransition if the name was used before."""
        if name in self._all:
            raise InvalidTransition(f"{name} joined before; a node that returns needs another name")
        self._all[name] = Member(name, reliable, self.joined, now)
        self.joined += 1
        return self._all[name]

    def set_phase(self, name: str, phase: NodePhase) -> None:
        """Moves a node to its next phase; InvalidTransition if that phase cannot follow."""
        member = self._all[name]
        if phase not in _NEXT[member.phase]:
            raise InvalidTransition(f"{name} cannot go from {member.phase.value} to {phase.value}")

        member.phase = phase
        self.changes += 1
        if phase in OUT:
            self._all[name] = self._all.pop(name)
            for forgotten in self.names(*OUT)[:-MAX_OUT]:
                del self._all[forgotten]

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        members = [(member.name, member.reliable, member.phase.value) for member in self]
        return {"members": members, "evictions": self.evictions, "failures": self.failures}

    def restore(self, record: Mapping[str, Any], now: float) -> None:
        """Takes over from an earlier controller."""
        for name, reliable, phase in record["members"]:
            member = self.join(name, reliable, now)
            member.phase = NodePhase(phase)
            if member.phase is not NodePhase.LOADING:
                member.grace = RETURN_SECONDS
        self.evictions = record["evictions"]
        self.failures = record["failures"]

    def refuse(self, name: str, reliable: bool, now: float) -> bool:
        """Counts a node as joined and gone, unless it is known; returns whether it was not."""
        if name in self._all:
            return False
        self.join(name, reliable, now)
        self.set_phase(name, NodePhase.GONE)
        return True

    def warn(self, name: str) -> NodePhase | None:
        """Takes an eviction warning, which may come before the hello; returns the node's new phase,
        None if none.
        """
        member = self._all.get(name) or self.join(name, reliable=False, now=0.0)
        phase = _AFTER_WARNING.get(member.phase)
        if phase is not None:
            self.set_phase(name, phase)
            self.evictions += 1
        return phase

    def lose(self, names: Iterable[str]) -> dict[str, NodePhase]:
        """Counts nodes as dead; returns the last phase of each that was not out yet.

        A node may be lost before its hello arrives; it counts as joined.
        """
        members = [
            self._all.get(name) or self.join(name, reliable=False, now=0.0) for name in names
        ]
        lost = {member.name: member.phase for member in members if member.phase not in OUT}
        for name in lost:
            self.set_phase(name, NodePhase.DEAD)
        self.failures += len(lost)
        return lost

    def activate_ready(self) -> list[str]:
        """Lets the nodes that are ready take part; returns their names."""
        names = self.names(NodePhase.READY)
        for name in names:
            self.set_phase(name, NodePhase.ACTIVE)
        return names

    def names(self, *phases: NodePhase) -> list[str]:
        """Names of the nodes in these phases, in the order of joining."""
        return [member.name for member in self if member.phase in phases]

    def alive(self, name: str) -> bool:
        """Whether a node takes part in the current epoch."""
        member = self._all.get(name)
        return member is not None and member.phase in IN_EPOCH

    def stays(self, name: str) -> bool:
        """Whether a node would take part in an epoch that started now."""
        member = self._all.get(name)
        return member is not None and member.phase in (NodePhase.ACTIVE, NodePhase.LEAVING)

    def active(self, *, reliable: bool) -> list[str]:
        """Active nodes of one kind, longest running first."""
        return [m.name for m in self if m.phase is NodePhase.ACTIVE and m.reliable is reliable]


USUAL_STEPS = 5
"""A step may take this many times as long as usual."""


def silent(members: Members, now: float, heartbeat_timeout: float) -> list[str]:
    """The nodes from which nothing was heard for too long."""
    return [
        member.name
        for member in members
        if member.phase not in OUT
        and now - member.last_heard > max(heartbeat_timeout, member.grace)
    ]


def hung(beat: Heartbeat, rules: NodeRules) -> str:
    """Why a node counts as hung although its heartbeats arrive; empty if it does not."""
    if beat.usual_step == UNKNOWN_STEP:
        if beat.stalled <= max(rules.startup_timeout, rules.hang_timeout):
            return ""
        return f"it hangs: its first step, or loading the trainer, has taken {beat.stalled:.0f} s"
    if beat.stalled <= max(rules.hang_timeout, USUAL_STEPS * beat.usual_step):
        return ""
    return (
        f"it hangs: no progress for {beat.stalled:.0f} s, and a step usually takes "
        f"{beat.usual_step:.3g} s"
    )


def heartbeat_name(node: str) -> str:
    """The name of a node's heartbeat process."""
    return f"{node}@heartbeat"


def may_send(sender: str, message: object) -> bool:
    """A node and its heartbeat process speak only for that node; the job loop speaks for all
    machines.
    """
    if sender == JOB_LOOP:
        return isinstance(message, Warned | NodeLost | StopJob)
    about = getattr(message, "node", "")
    return sender == (heartbeat_name(about) if isinstance(message, Heartbeat | NodeLost) else about)
