"""Values that the Python API returns."""

from __future__ import annotations

from rich.text import Text

from spotctl.cli.api import Drawn


def test_control_characters_of_an_answer_are_shown() -> None:
    answer = Drawn({}, lambda _: Text("\x1b[2J\u202eback"))
    assert str(answer) == r"\x1b[2J\u202eback"
    assert r"\x1b[2J\u202eback" in answer._repr_html_()
