"""A link from this process to itself, to measure what a message costs at both ends without another process."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from agileml.pipeline.model.base import Array
from agileml.pipeline.run.node import PipelineFrame
from agileml.pipeline.run.wire import message_in, post
from agileml.runtime.own_folder import own_folder
from agileml.transport import Endpoint, Identity, Received, UnixAddress
from agileml.transport.settings import PATIENT

_FROM, _TO = "from", "to"


class Loopback:
    """Two endpoints with a link; `loopback` makes one."""

    def __init__(self, sender: Endpoint, receiver: Endpoint) -> None:
        self._sender, self._receiver = sender, receiver

    def link(self) -> None:
        while not (self._sender.peers and self._receiver.peers):
            self._sender.poll(0.0)
            self._receiver.poll(0.0)

    def carry(self, array: Array) -> PipelineFrame:
        post(self._sender, _TO, PipelineFrame(0, ("activation", 0, 0), (array,)))
        while True:
            self._sender.poll(0.0)
            for event in self._receiver.poll(0.0):
                if isinstance(event, Received) and isinstance(message := message_in(event), PipelineFrame):
                    return message


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A link whose two ends are closed at the end of the block."""
    secret = secrets.token_bytes(32)
    with own_folder() as folder:
        sender, receiver = (Endpoint(Identity(name), secret, PATIENT) for name in (_FROM, _TO))
        try:
            sender.connect(_TO, receiver.listen(UnixAddress(str(folder / _TO))))
            ends = Loopback(sender, receiver)
            ends.link()
            yield ends
        finally:
            sender.close()
            receiver.close()
