"""The states of a node, and which message leads where.

The table is asked about messages of the current epoch only: those of earlier epochs are dropped, and those of later
ones are kept until the node has entered their epoch.
"""

from __future__ import annotations

from typing import get_args

from agileml.protocol.messages import (
    Accept,
    Collect,
    Drain,
    EndOfLife,
    EndOfLifeSeen,
    Enter,
    Evaluate,
    GiveShard,
    Handover,
    Leave,
    Limit,
    Move,
    NeedVersion,
    Patch,
    Pull,
    Push,
    Reads,
    Recover,
    Restore,
    Route,
    Snapshot,
    Stable,
    TakeShard,
)
from agileml.roles.transitions import State, Transition
from agileml.roles.work_exchange import HelpMessage


class NodeState(State):
    """The states of a node."""

    OUTSIDE = "in no epoch yet"
    RESTORING = "waits for versions of its partitions, from which the epoch starts"
    ACTIVE = "has all that it had at the start of the epoch"
    DRAINING = "holds nothing; waits until no message is in flight"


_IN_EPOCH = {
    Recover: Transition("_recover", frozenset({NodeState.RESTORING, NodeState.ACTIVE})),
    # Only a node that was in no epoch enters one without a recovery.
    Enter: Transition("_refuse"),
    # Its process ends; what still arrives until then is handled.
    Leave: Transition("_exit"),
    Route: Transition("_reroute"),
    Stable: Transition("_advance_stable"),
    Accept: Transition("_accept"),
    EndOfLife: Transition("_answer_mark"),
    # Nothing was marked.
    EndOfLifeSeen: Transition("_ignore"),
    # It was not requested, or is here already.
    Restore: Transition("_ignore"),
    Push: Transition("server.push"),
    Pull: Transition("server.pull"),
    Reads: Transition("server.set_reads"),
    Patch: Transition("server.patch"),
    NeedVersion: Transition("server.provide"),
    Handover: Transition("server.take_over"),
    Move: Transition("server.move"),
    Collect: Transition("server.collect"),
    **dict.fromkeys(
        (Snapshot, TakeShard, GiveShard, Limit, Evaluate, *get_args(HelpMessage)), Transition("worker.receive")
    ),
}

TRANSITIONS: dict[NodeState, dict[type, Transition]] = {
    NodeState.OUTSIDE: {
        **dict.fromkeys((*_IN_EPOCH, Drain), Transition("_refuse")),
        Recover: _IN_EPOCH[Recover],
        Enter: Transition("_enter", frozenset({NodeState.ACTIVE})),
        Leave: _IN_EPOCH[Leave],
    },
    NodeState.RESTORING: {
        **_IN_EPOCH,
        Restore: Transition("_restore", frozenset({NodeState.ACTIVE})),
        # The controller waits until the node has restored its partitions.
        Drain: Transition("_refuse"),
    },
    NodeState.ACTIVE: {**_IN_EPOCH, Drain: Transition("_drain", frozenset({NodeState.DRAINING}))},
    NodeState.DRAINING: {**_IN_EPOCH, Drain: Transition("_drain"), EndOfLifeSeen: Transition("_count_answer")},
}
