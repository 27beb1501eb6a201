"""Messages of a process on their way out: on each link in order, kept while the link opens or is
full, without gaps.

Between two nodes a message depends on those before it. So once some are lost with their link,
nothing more of the epoch is sent there, and the next epoch sends everything again. On the link to
the controller both sides start over.
"""

from collections.abc import Iterable

from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.runtime.output import Printed
from agileml.transport import Endpoint, FrameLimits, NotConnected, QueueFull
from agileml.transport.codec import Codec, Encoded, split

MAX_WAITING_OUTPUT = 256
"""Messages that may wait for the job loop; if more do, the output of nodes is left out."""


class Outbox:
    """The messages of the process `name` to others, cut into buckets where they are larger than a
    frame.

    Messages wait while a peer's queue is full. Only the controller never waits for a node: a node
    that leaves so much unread counts as lost, and its link is closed.
    """

    def __init__(self, name: str, endpoint: Endpoint, codec: Codec, limits: FrameLimits) -> None:
        self._name = name
        self._endpoint = endpoint
        self._codec = codec
        self._limits = limits
        self._waiting: dict[str, list[object]] = {}
        self._gaps: set[str] = set()
        """Nodes to which messages were lost with a link: they are sent nothing more of that
        epoch."""

    def send(self, to: str, message: object) -> bool:
        """Sends a message, now or once there is a link; whether it waits for a link that nothing
        has waited for yet.
        """
        if isinstance(message, Printed) and len(self._waiting.get(to, ())) >= MAX_WAITING_OUTPUT:
            return False
        if to in self._gaps:
            return False

        if to in self._waiting:
            self._waiting[to].append(message)
        elif to in self._endpoint.peers:
            self._send_all(to, [message])
        else:
            # Between nodes and the controller, a message is of no use once a link is open: both
            # sides start over.
            useful = to == JOB_LOOP if self._name == CONTROLLER else to != CONTROLLER
            if useful:
                self._waiting[to] = [message]
            return useful

        return False

    def waits(self, to: str) -> bool:
        """Whether messages for a peer wait."""
        return to in self._waiting

    def send_waiting(self) -> bool:
        """Tries again where there is a link; whether messages still wait for room."""
        linked = [to for to in self._waiting if to in self._endpoint.peers]
        for to in linked:
            self._send_all(to, self._waiting.pop(to))
        return any(to in self._waiting for to in linked)

    def opened(self, peer: str, first: list[object]) -> None:
        """A link is open: sends these messages, and then what has waited for the link."""
        self._send_all(peer, first + self._waiting.pop(peer, []))

    def note_lost(self, peers: Iterable[str]) -> None:
        """Links were lost. To be called before any of what arrived is answered, over a link that
        may be a new one.
        """
        self._gaps.update(filter(self._may_have_gaps, peers))

    def drop(self, peer: str) -> None:
        """There is no link, and what waits for one is of no use any more."""
        if self._waiting.pop(peer, None) and self._may_have_gaps(peer):
            self._gaps.add(peer)

    def begin_epoch(self) -> None:
        """Drops the messages for peers to which there is no link yet; all are sent messages
        again."""
        self._gaps.clear()
        self._waiting = {
            to: pending for to, pending in self._waiting.items() if to in self._endpoint.peers
        }

    def _may_have_gaps(self, peer: str) -> bool:
        """Whether messages depend on those before them: with the controller both sides start over
        instead.
        """
        return self._name not in (CONTROLLER, JOB_LOOP) and peer != CONTROLLER

    def _send_all(self, to: str, pending: list[object]) -> None:
        """Queues messages on the link as far as there is room; the others wait."""
        for number, message in enumerate(pending):
            # Of a message whose first frames are queued already, the other frames are left.
            frame: Encoded | None
            if isinstance(message, tuple):
                frame, frames = message
            else:
                frames = split(self._codec.encode(message), self._limits)
                frame = next(frames, None)

            try:
                while frame is not None:
                    self._endpoint.send(to, *frame)
                    frame = next(frames, None)
            except QueueFull as error:
                if self._name == CONTROLLER and to != JOB_LOOP:
                    self._endpoint.drop(to, f"it does not read its messages: {error}")
                else:
                    # It is tried again many times, always with the same iterator.
                    self._waiting[to] = [(frame, frames), *pending[number + 1 :]]
                return
            except NotConnected:
                # The link was opened and lost before its opening was reported here; `Lost` comes
                # next.
                return
