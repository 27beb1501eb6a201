"""The states of a worker, and which message leads where.

A worker processes orders between two pieces of work: while it computes, they wait for the end of the chunk. `Snapshot`
and messages about help are the exceptions.
"""

from __future__ import annotations

from typing import get_args

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
from agileml.roles.chunk_runner import WorkResult
from agileml.roles.transitions import State, Transition
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

_ORDERS = (TakeShard, GiveShard, Limit, Stable, Enter, Accept)
_HELP = get_args(HelpMessage)


def _between_chunks(among: frozenset[WorkerState]) -> dict[type, Transition]:
    return {
        **dict.fromkeys(_ORDERS, Transition("_obey_now", among)),
        Snapshot: Transition("_take_snapshot_now", among),
        # A worker that does not help others ignores these.
        **dict.fromkeys(_HELP, Transition("_help", among)),
        Evaluate: Transition("_obey_now", AT_THE_END),
        Recover: Transition("_obey_now", AT_WORK),
        WorkResult: Transition("_refuse"),
    }


def _while_busy(finish: str) -> dict[type, Transition]:
    return {
        **dict.fromkeys((*_ORDERS, Evaluate, Recover), Transition("_obey_later")),
        Snapshot: Transition("_keep_snapshot"),
        # At once, as the other side waits.
        **dict.fromkeys(_HELP, Transition("_help")),
        # The orders that waited are obeyed first.
        WorkResult: Transition(finish, AT_WORK | AT_THE_END),
    }


TRANSITIONS: dict[WorkerState, dict[type, Transition]] = {
    WorkerState.IDLE: _between_chunks(AT_WORK),
    WorkerState.WAITING: _between_chunks(AT_WORK),
    WorkerState.COMPUTING: _while_busy("_finish_chunk"),
    WorkerState.FETCHING: _between_chunks(AT_THE_END),
    WorkerState.EVALUATING: _while_busy("_finish_evaluation"),
    WorkerState.EVALUATED: _between_chunks(AT_THE_END),
}
