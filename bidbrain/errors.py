"""Errors of this package, split by what the caller can do about them."""


class BidBrainError(Exception):
    """Root of this package's errors; the message names the object, the value and the way out."""


class TooLittleHistory(BidBrainError):
    """The price history is too short for the question."""
