"""The states of a node; `node.TRANSITIONS` says which message leads where."""

from agileml.roles.transitions import State


class NodeState(State):
    """The states of a node."""

    OUTSIDE = "in no epoch yet"
    RESTORING = "waits for versions of its partitions, from which the epoch starts"
    ACTIVE = "has all that it had at the start of the epoch"
    DRAINING = "holds nothing; waits until no message is in flight"
