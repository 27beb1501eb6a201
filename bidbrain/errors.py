"""What can go wrong with a decision, split by what the caller can do about it."""

from __future__ import annotations


class BidBrainError(Exception):
    """Root of this package's errors; the message names the object, the value and the way out."""


class TooLittleHistory(BidBrainError):
    """A question needs a longer history than there is."""
