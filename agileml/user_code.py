"""The user's code: frames of its files, not of this package or of Python's own, and copies of its
objects for nodes.

Copies hold bytecode, so they need the Python that made them.
"""

import inspect
import pickle
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import FrameType
from typing import Any

from agileml.errors import BadTrainer

_OWN = (str(Path(__file__).parent), sysconfig.get_path("stdlib"), "<frozen", "<string>")
"""This package, the standard library, and code that only starts a process."""

_INSTALLED = tuple(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
"""Packages that the user's code calls."""

FATAL_ERROR = "Fatal Python error: "
_FRAME = re.compile(
    r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE
)


def is_users(file: str) -> bool:
    """Whether a file of a traceback is neither of this package nor of Python."""
    return not file.startswith(_OWN) or (
        file.startswith(_INSTALLED) and not file.startswith(_OWN[0])
    )


def is_own(file: str) -> bool:
    """Whether a file is the user's, and not one of an installed package."""
    return is_users(file) and not (
        file.startswith(_INSTALLED) or {"site-packages", "dist-packages"} & {*Path(file).parts}
    )


def crash_site(text: str) -> str:
    """Where the user's code was when its process printed its stacks and died; empty if the text
    shows no such crash.
    """
    _, fatal, stacks = text.rpartition(FATAL_ERROR)
    frames = (
        [frame for frame in _FRAME.finditer(stacks) if is_users(frame["file"])] if fatal else []
    )
    if not frames:
        return ""
    frame = next((frame for frame in frames if is_own(frame["file"])), frames[0])
    return (
        f"{fatal}{stacks.splitlines()[0]}; it was in {frame['file']}, line {frame['line']}, in "
        f"{frame['function']}"
    )


def condensed(text: str) -> str:
    """Output in which the stacks of all threads of a crashed process are cut down to the user's
    frames.
    """
    before, fatal, stacks = text.partition(FATAL_ERROR)
    if not fatal:
        return text
    cause, *lines = stacks.splitlines(keepends=True)
    frames = [
        line for line in lines if (frame := _FRAME.match(line.rstrip())) and is_users(frame["file"])
    ]
    return "".join([before, fatal, cause, *frames])


def raised_at(error: BaseException) -> str:
    """The line of the user's code that raised an error, or called what raised it; empty if it has
    no part in it.
    """
    return _innermost(traceback.extract_tb(error.__traceback__))


def described(error: BaseException) -> str:
    """The type of an error and its text, and the line of the user's code."""
    text = str(error)
    place = raised_at(error)
    return f"{type(error).__name__}{text and f': {text}'}{place and f' ({place})'}"


def whereabouts(frame: FrameType | None) -> str:
    """The line of the user's code that a thread executes; empty if it executes none."""
    if frame:
        return _innermost(traceback.extract_stack(frame))
    return ""


def _innermost(stack: StackSummary) -> str:
    """The last line of a stack that is in the user's files, or else in packages that they call."""
    frames = [frame for frame in stack if is_users(frame.filename)]
    own = [frame for frame in frames if is_own(frame.filename)] or frames
    if own:
        return f"{own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}"
    return ""


def beginning_of(function: object) -> str:
    """The file and line where a function begins, and its name."""
    whole = getattr(function, "func", function)  # that of a partial
    code = getattr(inspect.unwrap(whole), "__code__", None) if callable(whole) else None
    if code:
        return f"{code.co_filename}, line {code.co_firstlineno}, in {code.co_name}"
    return "code in C"


def users_traceback(error: BaseException) -> str:
    """The traceback of an error from the user's code on; empty if none of the user's code has a
    part in it.

    An error that wraps one of the user's code has that as its cause.
    """
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    raised = next((link for link in reversed(chain) if raised_at(link)), None)
    if raised is None:
        return ""

    shown = TracebackException.from_exception(raised, compact=True)
    first = next(number for number, frame in enumerate(shown.stack) if is_users(frame.filename))
    shown.stack = StackSummary.from_list(shown.stack[first:])
    return "".join(shown.format(chain=False))


_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def copy_of(value: object) -> dict[str, Any]:
    """The arguments of `original` that bring the object back in another process."""
    import cloudpickle

    return {"pickled": cloudpickle.dumps(value), "python": _HERE}


def original(pickled: bytes, python: str = _HERE) -> object:
    """The object of a copy. BadTrainer: another Python made the copy."""
    if python != _HERE:
        raise BadTrainer(
            f"the trainer was copied by Python {python}, and this node runs {_HERE}: pass"
            " TrainerSource('module:Class', {...}), from which each node creates its own, or use "
            "the same Python"
        )
    return pickle.loads(pickled)  # noqa: S301 - the job's own code, from the process that runs it
