"""What can go wrong on a link, split by what the caller can do about it."""

from __future__ import annotations

from agileml.errors import AgileMLError, BadInput, BrokenConnection, PeerRefused


class BadAddress(BadInput, ValueError):
    """An address that cannot be understood or used; correct it."""


class BadSecret(BadInput, ValueError):
    """The job's secret is too short to authenticate anybody."""


class NotConnected(AgileMLError):
    """There is no link to this peer (any more); `Lost` has told or will tell why."""


class QueueFull(AgileMLError):
    """The peer takes less than it is sent: nothing was queued; poll, and try again or give the peer up."""


class Unsendable(AgileMLError, ValueError):
    """What was to be sent is no legal frame or message; the peer would refuse it."""


class BadFrame(BrokenConnection):
    """A peer sent what is no legal frame, or one over the limits."""


class BadMessage(BrokenConnection):
    """A legal frame whose fields are not those of its kind of message."""


class HandshakeFailed(PeerRefused):
    """Two processes do not come together: another secret, another version, another name than expected."""
