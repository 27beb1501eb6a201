"""One connection of an endpoint, and what is under way on it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from itertools import islice

from agileml.transport.addresses import Address, TcpAddress
from agileml.transport.framing import Frame, FrameReader
from agileml.transport.handshake import Handshake
from agileml.transport.loop import Loop
from agileml.transport.settings import Tls
from agileml.transport.streams import PlainStream, Stream, TlsStream

_GATHERED = 64
"""Pieces of memory in one call of the system."""
_TURN_BYTES = 16 << 20
"""What one link moves before the others have their turn."""
LEAST_GAIN = 64 << 10
"""What a begun frame has to gain within `stall_seconds`."""


class Phase(Enum):
    """How far a link has come."""

    CONNECTING = auto()
    SECURING = auto()
    PROVING = auto()
    OPEN = auto()
    CLOSED = auto()


class Outgoing:
    """What waits to be sent, as pieces of the caller's own memory, counted in bytes since the link's beginning."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.queued = 0
        self.sent = 0

    def __len__(self) -> int:
        return self.queued - self.sent

    def add(self, pieces: Sequence[memoryview], nbytes: int) -> int:
        """Puts pieces at the end; they are gone when `sent` has reached the number returned."""
        self._pieces.extend(pieces)
        self.queued += nbytes
        return self.queued

    def send_through(self, stream: Stream) -> None:
        """Sends what the stream takes now, at most one turn's worth."""
        turn = self.sent + _TURN_BYTES
        while self._pieces and self.sent < turn:
            count = stream.send(list(islice(self._pieces, _GATHERED)))
            if count is None:
                return
            self._drop(count)

    def clear(self) -> None:
        """Lets go of the caller's memory."""
        self._pieces.clear()

    def _drop(self, count: int) -> None:
        self.sent += count
        pieces = self._pieces
        while pieces and count >= len(pieces[0]):
            count -= len(pieces.popleft())
        if count:
            pieces[0] = pieces[0][count:]


class Link:
    """A connection: first its handshake, then frames both ways."""

    def __init__(
        self, stream: PlainStream, address: Address, peer: str | None, handshake: Handshake, began: float
    ) -> None:
        self.stream: PlainStream | TlsStream = stream
        self.descriptor = stream.fileno()
        self.address = address
        self.peer = peer
        """Whom it leads to: the name that was connected to, or, once proven, the one who connected."""
        self.handshake = handshake
        self.began = began
        self.phase = Phase.CONNECTING
        self.outgoing = Outgoing()
        self.reader: FrameReader | None = None
        self.received = 0
        self.initiated = peer is not None
        self._heard = bytearray()
        self._checked = (began, 0)

    def secure(self, tls: Tls) -> None:
        """Begins the handshake of TLS on the connection."""
        assert isinstance(self.stream, PlainStream)
        context = tls.client if self.initiated else tls.server
        assert context is not None
        assert isinstance(self.address, TcpAddress)
        self.phase = Phase.SECURING
        self.stream = self.stream.secured(context, (tls.hostname or self.address.host) if self.initiated else None)

    def prove(self) -> None:
        """Begins the handshake of the job."""
        self.phase = Phase.PROVING
        self._say(self.handshake.opening())

    def _say(self, message: bytes) -> None:
        if message:
            self.outgoing.add([memoryview(message)], len(message))

    def bid_farewell(self, message: bytes) -> None:
        """Says a last thing, if it can be said at once."""
        if message:
            with contextlib.suppress(OSError):
                self.stream.send([memoryview(message)])

    def open(self, reader: FrameReader) -> None:
        """Frames from here on."""
        self.phase = Phase.OPEN
        self.reader = reader

    def close(self, loop: Loop) -> None:
        """Gives the descriptor back, and the memory that waited to be sent."""
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            loop.forget(self.descriptor)
            self.stream.close()
            self.outgoing.clear()

    def hear(self) -> bool | None:
        """Takes in the handshake's next message as far as it is here. None: no more now; False: the stream ended."""
        memory = bytearray(self.handshake.wanted - len(self._heard))
        count = self.stream.receive_into(memoryview(memory))
        if not count:
            return None if count is None else False
        self._heard += memory[:count]
        if len(self._heard) == self.handshake.wanted:
            message, self._heard = bytes(self._heard), bytearray()
            self._say(self.handshake.receive(message))
        return True

    def receive(self) -> tuple[list[Frame], bool]:
        """The frames that became complete in one turn, and whether the other side has ended the stream."""
        assert self.reader is not None
        frames: list[Frame] = []
        turn = self.received + _TURN_BYTES
        while self.received < turn:
            room = self.reader.room()
            count = self.stream.receive_into(room)
            if not count:
                return frames, count == 0
            self.received += count
            frames += self.reader.took(count)
            if count < len(room) and self.stream.short_read_is_last and not self.reader.receiving_body:
                break
        return frames, False

    @property
    def unfinished(self) -> bool:
        """Whether a frame has begun to arrive and not ended."""
        return self.reader is not None and self.reader.unfinished

    def stalls(self, now: float, seconds: float) -> bool:
        """Whether a begun frame gained too little in this time; to be asked again and again."""
        since, received = self._checked
        if self.unfinished and self.received - received < LEAST_GAIN and now - since >= seconds:
            return True
        if not self.unfinished or self.received - received >= LEAST_GAIN:
            self._checked = (now, self.received)
        return False
