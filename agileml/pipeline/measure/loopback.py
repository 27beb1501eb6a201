"""A link from this process to itself, to measure what a message costs at both ends without another process."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from agileml.pipeline.model.base import Array
from agileml.pipeline.run.fleet_node import PIPELINE_MESSAGES
from agileml.pipeline.run.node import PipelineFrame
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.own_folder import own_folder
from agileml.runtime.rendezvous import FolderRendezvous

_FROM, _TO = "from", "to"


class Loopback:
    """Two mailboxes; `loopback` makes one."""

    def __init__(self, sender: Mailbox, receiver: Mailbox) -> None:
        self._sender, self._receiver = sender, receiver

    def carry(self, array: Array) -> PipelineFrame:
        self._sender.send(_TO, PipelineFrame(0, ("activation", 0, 0), (array,)))
        while True:
            for _ in self._sender.receive(0.0):
                pass
            for event in self._receiver.receive(0.0):
                if isinstance(event, Envelope) and isinstance(event.message, PipelineFrame):
                    return event.message


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A link whose two ends are closed at the end of the block."""
    secret = secrets.token_bytes(32)
    with own_folder() as folder:
        rendezvous = FolderRendezvous(folder, secret)
        sender, receiver = (Mailbox(rendezvous, name, messages=PIPELINE_MESSAGES) for name in (_FROM, _TO))
        try:
            receiver.open()
            yield Loopback(sender, receiver)
        finally:
            sender.close()
            receiver.close()
