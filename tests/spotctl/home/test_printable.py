"""No character that commands a terminal, or turns the order of text around, is printed."""

from __future__ import annotations

import sys
import unicodedata

from spotctl.home.printable import printable

TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_every_control_character_and_override_is_shown_and_all_else_stays() -> None:
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        commands = (
            unicodedata.category(letter) in ("Cc", "Cs")
            or unicodedata.bidirectional(letter) in TURNING
        )
        shown = printable(letter)
        if commands and letter not in "\n\t":
            assert shown.isascii()
            assert shown.isprintable()
        else:
            assert shown == letter
