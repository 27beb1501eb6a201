"""Who is there: nodes that join, load, are warned, hang, fall silent or leave. It answers; the
controller acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from agileml.core.events import ControllerSettings, Failed, NodeLost, Tick
from agileml.core.members import IN_EPOCH, OUT, Member, Members, NodePhase, hung, silent
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Drain,
    Drained,
    Heartbeat,
    Hello,
    Leave,
    Ready,
    Routed,
    Warned,
    WorkDone,
)

LEFT_BEHIND = "evicted; it holds nothing of the job any more"

EVICTED_EARLY = "evicted before it joined the epoch"

DECLARED_LOST = "this node was declared lost and is no longer part of the job"

NodeEvent = Hello | Ready | Warned | NodeLost | Heartbeat | Tick | Routed | Drained


class Consequence(Enum):
    """The answers that say nothing else."""

    REMEMBER = "the record has changed"
    GATHER = "a job that waits for nodes may have enough"
    REPLAN = "partitions and shards may have to move"


@dataclass(frozen=True, slots=True)
class LostNodes:
    """Nodes with the phase of each until now; those that were out before are left out, so that
    there may be none.
    """

    phases: dict[str, NodePhase]
    why: str


NodeAnswer = Send | Consequence | str | Hello | Warned | LostNodes | Failed
"""A text is an event for the log; a hello that of a node that takes part, to a controller that was
restarted; a warning that of an active node, which has to give away what it holds; `Failed`: the
nodes of the first epoch do not come."""


@dataclass(slots=True)
class RollCall:
    """The nodes of a job, and the rules by which they are refused, awaited and given up."""

    settings: ControllerSettings
    members: Members = field(default_factory=Members)
    waiting_since: float | None = None
    """When this controller began to wait for the nodes of the first epoch."""

    def stale(self, event: object, now: float, epoch: int, *, open_: bool) -> bool | Send:
        """Whether an event is only a sign of life, because its node is out or its epoch is over.

        To a node that is out, the answer says so. `open_`: the epoch has not ended with nodes that
        were lost.
        """
        node = getattr(event, "node", None)
        if node is None or isinstance(event, Hello | NodeLost):
            return False

        member = self.members.get(node)
        if member is None and isinstance(event, Warned):
            return False
        if member is None and isinstance(event, Ready | Heartbeat):
            # The node's hello is on the way, or was lost with an earlier controller; then the node
            # will send another.
            return True
        if member is None or member.phase in OUT:
            # The node was taken for dead, but is alive: it must not continue in its old epoch.
            lost = member is None or member.phase is NodePhase.DEAD
            return Send(node, Leave(DECLARED_LOST if lost else LEFT_BEHIND, lost))

        member.last_heard = now
        if isinstance(event, WorkDone) or not hasattr(event, "epoch"):
            return False

        # Before a rollback of all nodes, reports of single changes are irrelevant.
        return bool(event.epoch != epoch or not open_)

    def handle(self, event: NodeEvent, now: float, epoch: int) -> Iterator[NodeAnswer]:
        """Processes an event. Act on each answer before asking for the next."""
        match event:
            case Hello():
                yield from self._greet(event, now)
            case Ready():
                if self.members[event.node].phase is NodePhase.LOADING:
                    self.members.set_phase(event.node, NodePhase.READY)
                    yield Consequence.REMEMBER
                    yield f"{event.node} ready"
                    yield Consequence.GATHER
                yield Consequence.REPLAN
            case Warned():
                yield from self._warn(event)
            case NodeLost():
                yield LostNodes(self.members.lose([event.node]), event.why)
            case Heartbeat():
                yield from self._watch(event)
            case Tick(late):
                yield from self._look_for_silent(now, late, epoch)
            case Routed():
                self.members[event.node].routed = event.version
                yield Consequence.REPLAN
            case Drained():
                yield from self._dismiss(event.node, epoch)
                yield Consequence.REPLAN

    def _greet(self, hello: Hello, now: float) -> Iterator[NodeAnswer]:
        code = self.settings.nodes.code
        member = self.members.get(hello.node)
        if code and hello.code != code:
            why = (
                f"{hello.node} runs version {hello.code} of the job's code, but the job runs {code}"
            )
            yield Send(hello.node, Leave(why))
            yield f"refused: {why}"
            if self.members.refuse(hello.node, hello.reliable, now):
                yield Consequence.REMEMBER
                # The first clock does not wait for a node that was refused.
                yield Consequence.GATHER
        elif member is None:
            self.members.join(hello.node, hello.reliable, now)
            yield Consequence.REMEMBER
        elif member.phase in OUT:
            # The node was warned or lost before its hello arrived, or while the controller was
            # away.
            lost = member.phase is NodePhase.DEAD
            yield Send(hello.node, Leave(DECLARED_LOST if lost else EVICTED_EARLY, lost))
        else:
            member.last_heard = now
            yield hello

    def _warn(self, event: Warned) -> Iterator[NodeAnswer]:
        yield f"{event.node} warned: {event.seconds:g} s"
        phase = self.members.warn(event.node)
        if phase is None:
            return

        if phase is NodePhase.LEAVING:
            yield event
        else:
            yield Send(event.node, Leave(EVICTED_EARLY))

        yield Consequence.REMEMBER
        # The first clock may have waited for this node alone.
        yield Consequence.GATHER

    def _watch(self, beat: Heartbeat) -> Iterator[NodeAnswer]:
        """Gives up a node whose heartbeat says that it hangs."""
        self.members[beat.node].grace = 0.0
        why = hung(beat, self.settings.nodes)
        if why:
            yield LostNodes(self.members.lose([beat.node]), why)
            leave = Leave(f"this node was declared lost: {why}", lost=True)
            yield Send(beat.node, leave)

    def _look_for_silent(self, now: float, late: float, epoch: int) -> Iterator[NodeAnswer]:
        # A busy or suspended computer had no time for the heartbeats of its nodes either.
        for member in self.members:
            member.last_heard = min(now, member.last_heard + late)
        longest = self.settings.nodes.heartbeat_timeout
        lost = silent(self.members, now, longest)
        if lost:
            yield LostNodes(self.members.lose(lost), f"no heartbeat for {longest:g} s")
            return

        # A job that may lack nodes does not wait for ever for its first epoch.
        if epoch or not self.settings.nodes.may_lack_nodes:
            return

        if self.waiting_since is None:
            self.waiting_since = now
        longest = self.settings.nodes.startup_timeout
        missing = shortage(self.members, self.settings)
        if missing and now - self.waiting_since > longest:
            yield Failed(f"training did not start within {longest:g} s: {missing}")

    # -- the end of a node -------------------------------------------------------------------------

    def drain(self, node: str, epoch: int) -> Send:
        """Asks a node that holds nothing any more to make sure that no message is in flight."""
        drain = Drain(epoch, tuple(name for name in self.members.names(*IN_EPOCH) if name != node))
        return Send(node, drain)

    def _dismiss(self, node: str, epoch: int) -> Iterator[NodeAnswer]:
        if self.members[node].phase is not NodePhase.DRAINING:
            return
        self.members.set_phase(node, NodePhase.GONE)
        yield Consequence.REMEMBER
        yield Send(node, Leave(LEFT_BEHIND))
        yield f"{node} left"
        for other in self.members.names(NodePhase.DRAINING):
            yield self.drain(other, epoch)


_PRESENT = (NodePhase.LOADING, NodePhase.READY, NodePhase.ACTIVE)


def can_start(members: Members, settings: ControllerSettings, epoch: int) -> bool:
    """Whether there is a node that can hold the model and, before the first epoch, all others are
    there and have loaded."""
    loaded = [member for member in _present(members) if member.phase is not NodePhase.LOADING]
    keeps = any(member.reliable or not settings.reliable for member in loaded)
    return keeps and (epoch > 0 or all_loaded(members, settings))


def all_loaded(members: Members, settings: ControllerSettings) -> bool:
    """Whether the nodes of the first epoch are there and have loaded, of whatever kind."""
    loading = any(member.phase is NodePhase.LOADING for member in _present(members))
    return not (loading or _absent(members, settings))


def shortage(members: Members, settings: ControllerSettings) -> str:
    """Which nodes a job that has not started is waiting for; empty if all have joined and some are
    still loading.
    """
    here = _present(members)
    reliable = sum(member.reliable for member in here)
    missing = [f"{settings.reliable - reliable} reliable"] if reliable < settings.reliable else []
    transient = _absent(members, settings) - max(0, settings.reliable - reliable)
    missing += [f"{transient} transient"] if transient > 0 else []
    if not missing or ((reliable or not settings.reliable) and not _absent(members, settings)):
        return ""

    names = ", ".join(member.name for member in here) or "none"
    asked = f"{settings.reliable}+{settings.transient}"
    joined = f"{reliable}+{len(here) - reliable}"
    return f"of {asked} nodes, {joined} have joined ({names}); missing: {' and '.join(missing)}"


def _absent(members: Members, settings: ControllerSettings) -> int:
    """Nodes that have not joined. If the fleet replaces nodes, those that have left since are not
    expected again.
    """
    came = len(_present(members)) if settings.nodes.needs_all else members.joined
    return max(0, settings.reliable + settings.transient - came)


def _present(members: Members) -> list[Member]:
    return [member for member in members if member.phase in _PRESENT]
