"""What can be set about an endpoint."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from agileml.transport.addresses import Address, UnixAddress
from agileml.transport.framing import Limits


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for every TCP link of an endpoint.

    `client` has to verify certificates (and `server`, to verify clients): the handshake that follows proves the job's
    secret, but not that nobody sits between the two ends. `hostname` is checked in place of the address's host.
    """

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds and waiting times of an endpoint."""

    limits: Limits = field(default_factory=Limits)
    max_queued_bytes: int = 1 << 30
    """Waiting for one peer. A frame that would exceed it is refused with QueueFull, unless nothing else waits."""
    max_links: int = 4096
    max_handshakes: int = 256
    """Strangers in their handshake at once; the one that has taken longest makes way for the next."""
    handshake_seconds: float = 5.0
    """From connecting or accepting to the proven link."""
    stall_seconds: float = 30.0
    """A begun frame has to gain 64 KiB (or end) in this time."""
    pooled_bytes: int = 256 << 20
    """Memory for large frames that is kept for the next ones."""
    unix_buffer_bytes: int | None = 1 << 20
    """The kernel's buffers of a Unix socket; None leaves them to the system, whose default is slower by a fifth."""
    tcp_buffer_bytes: int | None = None
    """The same for TCP, where the system adapts them to the path if it is let."""
    tls: Tls | None = None

    def buffer_bytes(self, address: Address) -> int | None:
        """The kernel's buffers for a link to an address."""
        return self.unix_buffer_bytes if isinstance(address, UnixAddress) else self.tcp_buffer_bytes
