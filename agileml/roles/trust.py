"""Whom a node believes: what another node says about a partition, in its own name or for somebody
else.

A worker sends its contributions to the server of a partition. While the partition moves, they may
reach a server that had it before, which forwards them. So a contribution is believed if it comes
from the worker that it names, or from a node that has had the partition in this epoch. The handover
of the partition says which nodes these are.

What must never happen: a node adds updates in the name of another one.
"""

from collections.abc import Mapping

from agileml.errors import InvalidTransition
from agileml.protocol.messages import Collect, Handover, Pull, Push, Reads


class Forged(InvalidTransition):
    """A node says what is not for it to say."""


def check_speaker(sender: str, message: object, former: Mapping[int, tuple[str, ...]]) -> None:
    """Raises Forged if a node may not send this message; `former` has the earlier servers of
    partitions.
    """
    match message:
        case Handover():
            believed = message.former[-1:] == (sender,)
        case Push():
            believed = sender == message.worker or all(
                sender in former.get(part.partition, ()) for part in message.parts
            )
        case Pull() | Reads():
            believed = sender == message.worker or sender in former.get(message.partition, ())
        case Collect():
            believed = sender in former.get(message.partition, ())
        case _:
            return
    if not believed:
        raise Forged(f"{sender} sent a {type(message).__name__} of another node")
