"""`Session`: what every command has: the settings, and the two ways of answering."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from spotctl.config import Settings

_PIPE_WIDTH = 200

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON on stdout, and nothing else there.")]


@dataclass(frozen=True)
class Session:
    """One run of the command line. Answers go to stdout, everything else to stderr."""

    home_flag: Path | None
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        """The settings, read once and not before they are needed."""
        from spotctl import config

        return config.load(os.environ, self.home_flag)

    @cached_property
    def out(self) -> Console:
        """Where answers for people go."""
        from rich.console import Console

        # A pipe has no width unless COLUMNS says so; what a program or a pager reads is better wide than folded.
        return Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH)

    @cached_property
    def err(self) -> Console:
        """Where progress and remarks go; progress is silent when it is not a terminal."""
        from rich.console import Console

        return Console(stderr=True, highlight=False)

    def remark(self, *lines: str) -> None:
        """Lines for the person at the terminal, beside the answer."""
        sys.stderr.writelines(f"{line}\n" for line in lines)

    def answer_json(self, value: object) -> None:
        """The answer for a program."""
        sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
