"""Which nodes count as lost: those that are silent, and those that are alive but make no progress.

A node's heartbeats come from a process of their own, so that they say nothing about the node's progress, except by the
numbers in them. A node whose process ended is noticed earlier, by its closed connections.
"""

from agileml.core.events import NodeRules
from agileml.core.members import OUT, Members
from agileml.protocol.messages import UNKNOWN_STEP, Heartbeat

FIRST_BEAT_SECONDS = 10.0
"""Time for the first heartbeat after a node or a controller has started: its process connects by itself."""

USUAL_STEPS = 5
"""A step may take this many times as long as usual."""


def silent(members: Members, now: float, heartbeat_timeout: float) -> list[str]:
    """The nodes from which nothing was heard for too long."""
    return [
        member.name
        for member in members
        if member.phase not in OUT
        and now - member.last_heard
        > (heartbeat_timeout if member.beating else max(heartbeat_timeout, FIRST_BEAT_SECONDS))
    ]


def hung(beat: Heartbeat, rules: NodeRules) -> str:
    """Why a node counts as hung although its heartbeats arrive; empty if it does not."""
    if beat.usual_step == UNKNOWN_STEP:
        if beat.stalled <= max(rules.startup_timeout, rules.hang_timeout):
            return ""
        return f"it hangs: its first step, or loading the trainer, has taken {beat.stalled:.0f} s"
    if beat.stalled <= max(rules.hang_timeout, USUAL_STEPS * beat.usual_step):
        return ""
    return f"it hangs: no progress for {beat.stalled:.0f} s, and a step usually takes {beat.usual_step:.3g} s"
