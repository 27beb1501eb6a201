"""Text from outside cannot command the terminal on which it is shown."""

from __future__ import annotations

import io

from rich.table import Table
from rich.text import Text

from spotctl.cli.remote import as_text
from spotctl.run.machine_output import OutputLine
from spotctl.show.layout import PrintableConsole

HOSTILE = "\x1b]0;owned\x07\x1b[2J\rdone\u202e"


def shown(renderable: object, *, is_terminal: bool) -> str:
    out = io.StringIO()
    PrintableConsole(file=out, force_terminal=is_terminal, width=80, highlight=False).print(
        renderable
    )
    return out.getvalue()


def test_escapes_are_shown_and_styles_work() -> None:
    text = shown(Text(HOSTILE, style="red"), is_terminal=True)
    assert text.startswith("\x1b[31m"), "Rich's own style"
    assert text.count("\x1b") == 2
    assert not {"\x07", "\r", "\u202e"} & set(text)


def test_cells_of_tables_are_shown_the_same_way() -> None:
    table = Table("name")
    table.add_row(Text("\x1b[2Jx"))
    assert "\x1b[2J" not in shown(table, is_terminal=False)
    assert "\\x1b" in shown(table, is_terminal=False)


def test_lines_and_their_breaks_stay() -> None:
    assert shown(Text("one\n\ttwo"), is_terminal=False).splitlines()[0] == "one"


def test_the_output_of_machines_is_printable() -> None:
    assert (
        as_text(OutputLine("m-1", HOSTILE, None)) == "m-1: \\x1b]0;owned\\x07\\x1b[2J\\rdone\\u202e"
    )
