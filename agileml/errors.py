"""Errors of a training run, by what the caller can do about them."""


class AgileMLError(Exception):
    """Root of this package's errors; the message names the object, the value and what to do."""


class BadInput(AgileMLError):
    """Invalid user input; correct it and try again."""


class UnknownApp(BadInput, LookupError):
    """There is no trainer of this name, module or file."""


class BadArgument(BadInput, ValueError):
    """A setting of an app or a run is unknown or out of range."""


class BadTrainer(AgileMLError):
    """The user's code violates the trainer's contract; the message names the app, the clock and the
    parameter.
    """


class TrainerFailed(AgileMLError):
    """The user's code raised an exception, which is the cause of this one."""


class NotFinite(BadTrainer, ArithmeticError):
    """An update or a loss is NaN or infinite: the training diverged, or the code divides by 0."""


class JobFailed(AgileMLError):
    """The controller has ended the job; the message says why."""


class PeerRefused(AgileMLError):
    """A peer was rejected: it has another version of the code, belongs to another job, or lacks the
    job's secret.
    """


class DeclaredLost(AgileMLError):
    """The controller has given this node up and continues without it."""


class BrokenConnection(AgileMLError):
    """A peer disconnected or sent an invalid message; the job treats it as failed."""


class InvalidTransition(AgileMLError):
    """An event contradicts the current state; the message names the event and the recent ones."""


class Unrecoverable(AgileMLError):
    """More was lost than the remaining copies can restore."""


class ControllerUnreachable(BrokenConnection, ConnectionError):
    """There was no controller for longer than a node waits: the job is over, or its computer cannot
    be reached.
    """


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
