"""`Session`: settings and output streams of one command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pricing_data.library import Library
    from spotctl.home.config import Settings

_PIPE_WIDTH = 200

JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


@dataclass(frozen=True)
class Session:
    """One invocation. Results go to stdout, everything else to stderr.

    With `in_window`, another process shows the events of runs.
    """

    home_flag: Path | None
    in_window: bool = False

    @cached_property
    def settings(self) -> Settings:
        """Settings, read on first use."""
        from spotctl.home import config

        return config.load(os.environ, self.home_flag)

    @cached_property
    def library(self) -> Library:
        """The stored prices and the catalog, opened on first use."""
        from spotctl.clouds import wiring

        return wiring.library(self.settings)

    @property
    def in_terminal(self) -> bool:
        """Whether a person watches this command, and can answer its questions."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    @cached_property
    def out(self) -> Console:
        from spotctl.show.layout import PrintableConsole

        # A pipe has no width unless COLUMNS sets one; pagers and programs prefer wide lines to
        # folded ones.
        return PrintableConsole(
            highlight=False,
            width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH,
        )

    @cached_property
    def err(self) -> Console:
        """Console for progress and remarks; progress is shown on terminals only."""
        from spotctl.show.layout import PrintableConsole

        return PrintableConsole(stderr=True, highlight=False)

    def remark(self, *lines: str) -> None:
        """Prints lines for a person on stderr."""
        _write(sys.stderr, lines)

    def say(self, *lines: str, indent: int | None = None) -> None:
        """Prints lines of a result on stdout; on a terminal, words stay whole, and the rest of a
        line is indented.
        """
        _write(sys.stdout, lines, indent)

    def answer(
        self, json_: bool, value: object, shown: RenderableType | None, *remarks: str
    ) -> None:
        """The result of a command: JSON for a program; for a person, what is shown on stdout, and
        remarks on stderr.
        """
        if json_:
            self.answer_json(value)
            return
        if shown is not None:
            self.out.print(shown)
        self.remark(*remarks)

    def answer_json(self, value: object) -> None:
        """Prints a result for a program on stdout."""
        sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def is_debug(context: typer.Context) -> bool:
    """Whether the command was given --debug."""
    return bool(context.find_root().params.get("debug"))


def _write(stream: TextIO, lines: Iterable[str], indent: int | None = None) -> None:
    from spotctl.home.printable import printable, width_of, wrapped

    width = width_of(stream)
    stream.writelines(f"{wrapped(printable(line), width, indent)}\n" for line in lines)
