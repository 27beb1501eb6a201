"""Where in the user's code something happened: frames of the user's files, not of this package or of Python's own."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

_OWN = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
"""This package, the standard library, and code without a file."""

_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def is_users(file: str) -> bool:
    """Whether a file of a traceback is the user's."""
    return not file.startswith(_OWN)


def crash_site(text: str) -> str:
    """Where the user's code was when its process printed its stacks and died; empty if the text shows no such crash."""
    _, fatal, stacks = text.rpartition(_FATAL)
    if not fatal:
        return ""
    frame = next((one for one in _FRAME.finditer(stacks) if is_users(one["file"])), None)
    if frame is None:
        return ""
    return f"{fatal}{stacks.splitlines()[0]}; it was in {frame['file']}, line {frame['line']}, in {frame['function']}"
