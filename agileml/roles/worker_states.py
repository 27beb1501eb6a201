"""The states of a worker; `worker.TRANSITIONS` says which message leads where.

A worker processes orders between two pieces of work: while it computes, they wait for the end of the chunk. `Snapshot`
and messages about help are the exceptions.
"""

from agileml.protocol.messages import (
    Accept,
    Enter,
    Evaluate,
    GiveShard,
    Limit,
    Recover,
    Snapshot,
    Stable,
    TakeShard,
)
from agileml.roles.transitions import State
from agileml.roles.work_exchange import HelpMessage

WorkerMessage = Recover | Snapshot | TakeShard | GiveShard | Limit | Stable | Enter | Evaluate | Accept | HelpMessage
"""Messages that a worker processes."""


class WorkerState(State):
    """The states of a worker."""

    IDLE = "has nothing to compute: no shard, none before the limit, or its clock is being decided without it"
    WAITING = "waits for versions that it has requested"
    COMPUTING = "computes a chunk"
    FETCHING = "all clocks are done; waits for the final version"
    EVALUATING = "computes a shard's part of the final loss"
    EVALUATED = "has computed the final loss on all its shards"


AT_WORK = frozenset({WorkerState.IDLE, WorkerState.WAITING, WorkerState.COMPUTING})
AT_THE_END = frozenset({WorkerState.FETCHING, WorkerState.EVALUATING, WorkerState.EVALUATED})
BUSY = frozenset({WorkerState.COMPUTING, WorkerState.EVALUATING})
"""In these states the user's code runs."""
