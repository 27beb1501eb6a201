"""Text from files and clouds, made safe to print."""

import os
import re
import textwrap
from typing import TextIO

# Line breaks and tabs are left; everything else that moves a terminal's cursor or changes its state
# is shown as text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters written as escapes: a file must not be able to command the
    terminal.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def wrapped(line: str, width: int | None, indent: int | None = None) -> str:
    """The line as a terminal of this width shows it without breaking words; with None, for a pipe,
    as it is.

    What follows the first line is indented as that is, or by `indent`.
    """
    if not width or len(line) <= width:
        return line

    spaces = " " * (len(line) - len(line.lstrip(" ")) if indent is None else indent)
    parts = textwrap.wrap(
        line,
        width,
        subsequent_indent=spaces,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )

    return "\n".join(parts)


def width_of(stream: TextIO) -> int | None:
    """The columns of the terminal on which a stream ends; None for a pipe or a file."""
    return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else None
