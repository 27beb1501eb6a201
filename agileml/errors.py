"""Errors of a training run, by what the caller can do about them.

Below them are the checks of settings, with one clear line for a value that cannot work, and of
PyTorch, which is optional.
"""

from math import inf, isfinite
from numbers import Integral, Real
from typing import Any


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


def check_whole(name: str, value: object, least: int, most: float = inf) -> None:
    """Raises BadArgument unless the value is a whole number from `least` to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        raise BadArgument(f"{name} is {value!r}; it must be a whole number {_range(least, most)}")


def check_number(
    name: str,
    value: object,
    least: float,
    most: float = inf,
    *,
    above: bool = False,
    finite: bool = True,
) -> None:
    """Raises BadArgument unless the value is a number from `least` (`above`: more than that) to
    `most`.
    """
    fits = False
    if not isinstance(value, bool) and isinstance(value, Real):
        number = float(value)
        within = least <= number <= most and not (above and number == least)
        fits = within and (isfinite(number) or not finite)

    if not fits:
        bounds = f"above {least:,g}" if above else _range(least, most)
        raise BadArgument(
            f"{name} is {value!r}; it must be a{' finite' * finite} number {bounds}".rstrip()
        )


def check_flag(name: str, value: object) -> None:
    """Raises BadArgument unless the value is True or False."""
    if not isinstance(value, bool):
        raise BadArgument(f"{name} is {value!r}; it must be True or False")


def _range(least: float, most: float) -> str:
    if most < inf:
        return f"from {least:,g} to {most:,g}"
    if least == -inf:
        return ""
    return f"of at least {least:,g}"


NEEDS_TORCH = "needs PyTorch: pip install 'spotctl[torch]'"


def torch_module() -> Any:  # noqa: ANN401  # a module, which may be missing
    """PyTorch, or an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise AgileMLError(f"this model {NEEDS_TORCH}") from None
    return torch
