"""The settings of an endpoint, what it reports of its links, and one link: a connection, with its
data in flight.
"""

import contextlib
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice

from agileml.transport.addresses import Address, UnixAddress
from agileml.transport.certificates import HOSTNAME
from agileml.transport.framing import Array, Frame, FrameLimits, FrameReader
from agileml.transport.handshake import Handshake
from agileml.transport.sockets import Loop, PlainStream, Stream


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Limits and timeouts of an endpoint."""

    limits: FrameLimits = field(default_factory=FrameLimits)
    helper_body_bytes: int = 1 << 40
    """Bytes of arrays in a frame of a process that helps a node: `node@heartbeat`, and links for
    blobs."""
    max_queued_bytes: int = 1 << 30
    """Queued for one peer. A frame that would exceed it raises QueueFull, unless nothing else is
    queued."""
    max_links: int = 4096
    max_handshakes: int = 256
    """Incoming connections in their handshake; beyond that the oldest is dropped for the newest."""
    handshake_seconds: float = 5.0
    """From connecting or accepting to the authenticated link."""
    stall_seconds: float = 30.0
    """A started frame has to gain 64 KiB (or end) in this time."""
    pooled_bytes: int = 256 << 20
    """Memory of large frames that is kept for later ones."""
    unix_buffer_bytes: int | None = 1 << 20
    """Kernel buffers of a Unix socket; None means the system's default, which is a fifth slower."""
    tcp_buffer_bytes: int | None = None
    """Kernel buffers of a TCP socket; None lets the system adapt them to the path."""

    def buffer_bytes(self, address: Address) -> int | None:
        """The size of the kernel buffers for a link to an address."""
        if isinstance(address, UnixAddress):
            return self.unix_buffer_bytes
        return self.tcp_buffer_bytes


PATIENT = TransportSettings(stall_seconds=3600.0)
"""User code may stop a node in the middle of a message; whether the node hangs is for its
heartbeats to say."""


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A message from a peer. The receiver owns its arrays; their shared memory lives as long as one
    of them.
    """

    peer: str
    kind: str
    header: bytes
    arrays: list[Array]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Connected:
    """A link to a peer is open, and both sides have proven that they belong to the job.

    `instance` differs when the peer is another process than before.
    """

    peer: str
    instance: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The link to a peer is closed. Complete messages were reported before; queued ones may not
    have arrived.
    """

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A connection attempt failed. `peer` is the one we tried to reach; None if an unknown process
    tried to reach us.

    `permanent` means that trying again cannot help: the two have different secrets or different
    versions of the code, or the name belongs to another process. `no_answer`: something accepted
    the connection, or may have, but did not answer in time.
    """

    peer: str | None
    address: str
    reason: str
    permanent: bool = False
    no_answer: bool = False


LinkEvent = Received | Connected | Lost | Rejected


_GATHERED = 64
"""Pieces of memory per system call."""
_TURN_BYTES = 16 << 20
"""Bytes that a link may move before it is the others' turn."""
_TURN_FRAMES = 4096
"""Frames that a link may bring before they are handled: each of a flood of small ones takes a few
hundred bytes."""
MIN_GAIN = 64 << 10
"""Bytes that a started frame has to gain within `stall_seconds`."""


class Phase(Enum):
    """The state of a link."""

    CONNECTING = auto()
    SECURING = auto()
    PROVING = auto()
    OPEN = auto()
    CLOSED = auto()


class Outgoing:
    """Queued data, as pieces of the caller's memory, counted in bytes since the link was opened."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.queued = 0
        self.sent = 0

    def __len__(self) -> int:
        return self.queued - self.sent

    def add(self, pieces: Sequence[memoryview], nbytes: int) -> int:
        """Appends pieces; they are sent once `sent` has reached the returned number."""
        self._pieces.extend(pieces)
        self.queued += nbytes
        return self.queued

    def send_through(self, stream: Stream) -> None:
        """Sends what the stream accepts now, for at most one turn."""
        turn = self.sent + _TURN_BYTES
        while self._pieces and self.sent < turn:
            count = stream.send(list(islice(self._pieces, _GATHERED)))
            if count is None:
                return
            self.sent += count
            pieces = self._pieces
            while pieces and count >= len(pieces[0]):
                count -= len(pieces.popleft())
            if count:
                pieces[0] = pieces[0][count:]

    def clear(self) -> None:
        """Releases the caller's memory."""
        self._pieces.clear()


class Link:
    """A connection: first the handshake, then frames in both directions."""

    def __init__(
        self,
        stream: PlainStream,
        address: Address,
        peer: str | None,
        handshake: Handshake,
        began: float,
    ) -> None:
        self.stream: Stream = stream
        self.descriptor = stream.fileno()
        self.address = address
        self.peer = peer
        """The peer's name: the one connected to, or the proven name of an incoming connection."""
        self.handshake = handshake
        self.began = began
        self.phase = Phase.CONNECTING
        self.outgoing = Outgoing()
        self.reader: FrameReader | None = None
        self.received = 0
        self.initiated = peer is not None
        self._partial = bytearray()
        self._checked = (began, 0)

    def secure(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        """Starts the TLS handshake."""
        assert isinstance(self.stream, PlainStream)
        self.phase = Phase.SECURING
        if self.initiated:
            self.stream = self.stream.secured(client, HOSTNAME)
        else:
            self.stream = self.stream.secured(server, None)

    def prove(self) -> None:
        """Starts the job's handshake."""
        self.phase = Phase.PROVING
        self.handshake.proven = self.stream.proven_name
        self._queue(self.handshake.opening())

    def _queue(self, message: bytes) -> None:
        if message:
            self.outgoing.add([memoryview(message)], len(message))

    def send_now(self, message: bytes) -> None:
        """Sends a last message if that is possible without waiting."""
        if message:
            with contextlib.suppress(OSError):
                self.stream.send([memoryview(message)])

    def close(self, loop: Loop) -> None:
        """Closes the socket and releases queued memory."""
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            loop.forget(self.descriptor)
            self.stream.close()
            self.outgoing.clear()

    def receive_handshake(self) -> bool | None:
        """Receives part of the next handshake message. None: no more data now; False: the stream
        has ended.
        """
        memory = bytearray(self.handshake.wanted - len(self._partial))
        count = self.stream.receive_into(memoryview(memory))
        if not count:
            return None if count is None else False

        self._partial += memory[:count]
        if len(self._partial) == self.handshake.wanted:
            message = bytes(self._partial)
            self._partial = bytearray()
            self._queue(self.handshake.receive(message))
        return True

    def receive(self) -> tuple[list[Frame], bool]:
        """The frames completed in one turn, and whether the peer has ended the stream."""
        assert self.reader is not None
        frames: list[Frame] = []
        turn = self.received + _TURN_BYTES
        while self.received < turn and len(frames) < _TURN_FRAMES:
            room = self.reader.room()
            count = self.stream.receive_into(room)
            if not count:
                return frames, count == 0
            self.received += count
            frames += self.reader.took(count)
            if (
                count < len(room)
                and self.stream.short_read_is_last
                and not self.reader.receiving_body
            ):
                break

        return frames, False

    @property
    def unfinished(self) -> bool:
        """Whether a frame has arrived in part."""
        return self.reader is not None and self.reader.unfinished

    def stalls(self, now: float, seconds: float) -> bool:
        """Whether a started frame has gained too little in this time. Call it regularly."""
        since, received = self._checked
        if self.unfinished and self.received - received < MIN_GAIN and now - since >= seconds:
            return True
        if not self.unfinished or self.received - received >= MIN_GAIN:
            self._checked = (now, self.received)
        return False
