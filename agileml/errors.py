"""What can go wrong in a training run, split by what the caller can do about it."""

from __future__ import annotations


class AgileMLError(Exception):
    """Root of this package's errors; the message names the object, the value and the way out."""


class BadInput(AgileMLError):
    """Something given by a person cannot be understood; correct it and try again."""


class UnknownApp(BadInput, LookupError):
    """No trainer is found under a name, module or file."""


class BadArgument(BadInput, ValueError):
    """A setting of an app or of a run is out of range or not one of its settings."""


class BadTrainer(AgileMLError):
    """The user's code does not keep the trainer's contract; the message names the app, the clock and the parameter."""


class TrainerFailed(AgileMLError):
    """The user's code raised; its own exception is the cause."""


class NotFinite(BadTrainer, ArithmeticError):
    """An update or a loss is NaN or infinite: the training diverged, or the code divides by 0."""


class Refused(AgileMLError):
    """A peer is not taken in: another version of the code, another job, or no knowledge of the job's secret."""


class BrokenConnection(AgileMLError):
    """A peer went away or sent what is no message; what it owned is handled as a failure."""


class InvalidTransition(AgileMLError):
    """An event does not fit the state it meets; the message tells the story that led there."""


class Unrecoverable(AgileMLError):
    """More was lost than any copy can restore."""
