"""Text from files and clouds, made safe to print."""

from __future__ import annotations

import re

# Line breaks and tabs are left; everything else that moves a terminal's cursor or changes its state is shown as text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters written as escapes: a file must not be able to command the terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
