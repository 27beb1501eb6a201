"""Who may say what, and which blobs a node may read and write: rights by name.

Names are proven by certificates between computers (`agileml.transport.certificates`). A rented
machine is a stranger's: it may do its own share of the work wrongly, and nothing else. So each
process checks at its own door that a message is one that its sender may send, and that it speaks
for no other process; a sender that breaks the rules is shut out. What only the receiver's state can
tell, such as who serves a partition, is checked in `agileml.roles.server_parts`.

What must never happen: a process acts on a message whose sender had no right to send it. The table
of these rights is in docs/internals/threats.md.
"""

import re
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite

from agileml.core.events import Implausible, NodeLost, StopJob
from agileml.core.members import heartbeat_name, may_send
from agileml.params.layout import Layout
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import (
    UNKNOWN_STEP,
    BegunHelping,
    CancelHelp,
    Collect,
    Collected,
    DoThis,
    EndOfLife,
    EndOfLifeSeen,
    Handover,
    HelpEnded,
    NeedVersion,
    Patch,
    ProgressReport,
    Pull,
    Push,
    Reads,
    Restore,
    Snapshot,
    TakeShard,
    Warned,
)
from agileml.runtime.output import MAX_BYTES, Printed
from agileml.runtime.rendezvous import Directory
from agileml.runtime.results import Acknowledged, Settle
from agileml.transport.handshake import BLOB_CLIENT

MISCONDUCT = "it sent"
"""A link that was closed because its peer broke the rules has a reason that begins with this."""

_MAX_ADDRESSES, _LONGEST_ADDRESS, _LONGEST_OUTPUT = 8, 512, 4 * MAX_BYTES

_FROM_JOB_LOOP = frozenset({Warned, NodeLost, StopJob, Acknowledged, Settle})

_AMONG_NODES = frozenset(
    {
        Push,
        Pull,
        Reads,
        Snapshot,
        TakeShard,
        Handover,
        Patch,
        NeedVersion,
        Restore,
        EndOfLife,
        EndOfLifeSeen,
        Collect,
    }
    | {ProgressReport, DoThis, BegunHelping, CancelHelp, HelpEnded}
)
"""Messages of nodes to each other; a kind that only some jobs have says so itself. All other kinds
are orders of the controller, or reports to it. A server passes on the controller's `Collect`."""

_ABOUT_SENDER: dict[type, str] = {
    **dict.fromkeys((EndOfLife, EndOfLifeSeen, NeedVersion), "node"),
    **dict.fromkeys((ProgressReport, DoThis, BegunHelping, CancelHelp, HelpEnded), "worker"),
}
"""Messages among nodes with the field that must name the sender. A push or a pull may have been
forwarded."""


def may_say(sender: str, receiver: str, message: object) -> bool:
    """Whether a process may send this message to that one."""
    kind = type(message)
    if sender == CONTROLLER:
        return receiver == JOB_LOOP or kind not in _AMONG_NODES or kind is Collect
    if receiver != CONTROLLER:
        field = _ABOUT_SENDER.get(kind)
        among = kind in _AMONG_NODES or getattr(kind, "among_nodes", False)
        return among and (field is None or getattr(message, field) == sender)

    match message:
        case _ if sender == JOB_LOOP:
            return kind in _FROM_JOB_LOOP
        case Directory():
            own = message.addresses.get(sender, ())
            short = len(own) <= _MAX_ADDRESSES and all(
                len(address) <= _LONGEST_ADDRESS for address in own
            )
            return (
                short
                and message.addresses.keys() == {sender}
                and not sender.startswith(BLOB_CLIENT)
            )
        case Printed():
            return sender == heartbeat_name(message.node) and len(message.text) <= _LONGEST_OUTPUT

    # Whatever is no request, the server of blobs refuses.
    return sender.startswith(BLOB_CLIENT) or may_send(sender, message)


_CHECKPOINT = re.compile(r"checkpoints/p(\d{1,9})-c(\d{1,12})\.checkpoint")

_READABLE = re.compile(rf"node\.job|{_CHECKPOINT.pattern}")

Grant = tuple[int, int]
"""A partition and a clock: the one checkpoint that a node was told to write."""


def may_use(kind: str, name: str, granted: frozenset[Grant]) -> bool:
    """Whether a node may read a blob, or write the one that it was told to write; it lists and
    deletes none.
    """
    if kind == "read":
        return _READABLE.fullmatch(name) is not None
    match = _CHECKPOINT.fullmatch(name)
    return kind == "write" and match is not None and (int(match[1]), int(match[2])) in granted


_MOST = 1 << 53
_COUNTED = {"partition": "partitions", "layer": "partitions", "shard": "shards"}
_MAY_DIVERGE = frozenset({"loss_sum", "square", "losses", "sums"})
"""Fields that may hold no number: a training may diverge."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of what the reports of a job's nodes can mean: how many partitions and shards
    there are.
    """

    partitions: int = _MOST
    shards: int = _MOST
    layout: Layout | None = None
    """That of the model, if its partitions have one that is known before it is trained."""

    def check(self, report: object) -> None:
        """Raises Implausible for a report with a number out of bounds, for which the controller has
        no rule.
        """
        if (
            isinstance(report, Collected)
            and self.layout is not None
            and report.partition < self.partitions
        ):
            # What follows are the optimizer's arrays, which no one reads.
            segments = self.layout.partitions[report.partition]
            wanted = [
                (segment.rows, *self.layout.spec(segment.name).shape[1:]) for segment in segments
            ]
            if [array.shape for array in report.version.state[: len(segments)]] != wanted:
                raise Implausible("Collected whose arrays are not those of the partition")
        for field in fields(report) if is_dataclass(report) else ():
            value = getattr(report, field.name)
            most = getattr(self, _COUNTED.get(field.name, ""), _MOST)
            if field.name not in _MAY_DIVERGE and not _within(value, most):
                raise Implausible(f"{type(report).__name__} whose {field.name} is {value!r:.80}")


def _within(value: object, most: int) -> bool:
    """Whether all whole numbers in a value are counts below `most`, and all others finite."""
    if isinstance(value, int):
        return 0 <= value < most
    if isinstance(value, float):
        return isfinite(value) and value >= UNKNOWN_STEP
    return not isinstance(value, tuple) or all(_within(each, most) for each in value)
