"""Errors of a link, split by what the caller can do about them."""

from agileml.errors import AgileMLError, BadInput, BrokenConnection


class BadAddress(BadInput, ValueError):
    """An address is invalid or cannot be used."""


class BadSecret(BadInput, ValueError):
    """The job's secret is too short."""


class NotConnected(AgileMLError):
    """There is no link to this peer, or no longer; a `Lost` event gives the reason."""


class QueueFull(AgileMLError):
    """The peer reads too slowly. Nothing was queued: poll and try again, or drop the peer."""


class Unsendable(AgileMLError, ValueError):
    """A message cannot be encoded, or exceeds the limits; the peer would refuse it."""


class BadFrame(BrokenConnection):
    """A peer sent an invalid frame, or one over the limits."""


class BadMessage(BrokenConnection):
    """A peer sent a valid frame whose fields do not fit its kind of message."""
