"""Which process may tell the controller what."""

from agileml.core.events import NodeLost, StopJob
from agileml.protocol.actions import JOB_LOOP
from agileml.protocol.messages import Heartbeat, Warned

_HEARTBEAT_SUFFIX = "@heartbeat"


def heartbeat_name(node: str) -> str:
    """The name of a node's heartbeat process."""
    return node + _HEARTBEAT_SUFFIX


def node_of(process: str) -> str:
    """The node for which a process speaks: itself, or the one whose heartbeat process it is."""
    return process.removesuffix(_HEARTBEAT_SUFFIX)


def is_heartbeat_process(process: str) -> bool:
    """Whether a name is that of a heartbeat process."""
    return process.endswith(_HEARTBEAT_SUFFIX)


def may_send(sender: str, message: object) -> bool:
    """A node and its heartbeat process speak only for that node; the job loop speaks for all machines."""
    if sender == JOB_LOOP:
        return isinstance(message, Warned | NodeLost | StopJob)
    about = getattr(message, "node", "")
    if is_heartbeat_process(sender):
        return isinstance(message, Heartbeat | NodeLost) and about == node_of(sender)
    return not isinstance(message, Heartbeat | NodeLost) and about == sender
