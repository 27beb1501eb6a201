"""Errors on a rented machine and on the link to it. Messages name the object, the value and the way
out.
"""


class AgentError(Exception):
    """Root of this package's errors."""


class BrokenProtocol(AgentError):
    """A file or a request does not have the agreed form."""


class BadCheckpoint(AgentError):
    """A checkpoint cannot be written, or none of the written ones can be used."""


class TransferFailed(AgentError):
    """Data cannot be copied to the machine, or outputs cannot be copied from it."""


class ContainerRefused(AgentError):
    """The payload's container image cannot be pulled, or cannot run on this machine."""


class CannotBuild(AgentError):
    """The environment of a job's program cannot be built."""


class BrokenFrame(AgentError):
    """A frame of a link is too long, is not JSON, or is not signed by the other side."""


class WrongSecret(AgentError):
    """One side of a link does not know the secret of the other."""


class LinkLost(AgentError):
    """The agent did not answer. The request may or may not have been carried out."""


class LinkTimeout(LinkLost):
    """The agent was reached, or might be, but did not answer in time."""


class MachineEnding(AgentError):
    """The machine takes no more work: its lease has ended, or a shutdown was requested."""


class RequestRefused(AgentError):
    """The agent knows the caller, but cannot or will not carry out the request."""
