"""What can go wrong in the product itself, split by what the caller can do about it."""

from __future__ import annotations


class SpotctlError(Exception):
    """Root of this package's errors; the message names the object, the value and the way out."""


class BadSettings(SpotctlError):
    """A setting from the file or the environment cannot be used."""


class BadRequest(SpotctlError):
    """What was asked for on the command line cannot be done as asked."""


class MissingSecret(SpotctlError):
    """A secret that a job names is not in the environment."""
