"""Settings of an endpoint, and what it reports."""

from dataclasses import dataclass, field

from agileml.transport.framing import Array, FrameLimits
from agileml.transport.sockets import Address, UnixAddress


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
