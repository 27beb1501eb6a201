"""Text from files and clouds, made safe to print."""

from __future__ import annotations

import re
import textwrap

# Line breaks and tabs are left; everything else that moves a terminal's cursor or changes its state is shown as text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters written as escapes: a file must not be able to command the terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def wrapped(line: str, width: int | None) -> str:
    """The line as a terminal of this width shows it without breaking words; with None, for a pipe, as it is."""
    if not width or len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip(" ")))
    parts = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(parts)
