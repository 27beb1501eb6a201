"""What can go wrong on a rented machine. The message names the object, the value and the way out."""

from __future__ import annotations


class AgentError(Exception):
    """Root of this package's errors."""


class BrokenProtocol(AgentError):
    """A file between the job and its runner is not what it should be."""


class BadCheckpoint(AgentError):
    """A checkpoint cannot be written, or none that was written can be used."""


class CannotStage(AgentError):
    """Data cannot be brought to the machine, or what a program made not from it."""
