"""How many commands and options a user sees, from Typer's own tree of a checkout.

Commands are those that do something, not groups. Options of hidden commands, hidden options and
--help do not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Surface:
    """The numbers of commands, options and arguments that the help shows."""

    commands: int
    hidden: int
    options: int
    arguments: int


def surface_of(root: Path) -> Surface:
    """Loads the command line of a checkout in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    words = [sys.executable, "-P", __file__]
    printed = subprocess.run(
        words, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return Surface(**json.loads(printed))


def _counted() -> dict[str, int]:
    from typer.main import get_command

    from spotctl.cli.app import app

    leaves = list(_leaves(get_command(app), hidden=False))
    shown = [
        parameter
        for command, hidden in leaves
        if not hidden
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    ]
    kinds = [parameter.param_type_name for parameter in shown if parameter.name != "help"]
    return {
        "commands": sum(not hidden for _, hidden in leaves),
        "hidden": sum(hidden for _, hidden in leaves),
        "options": kinds.count("option"),
        "arguments": kinds.count("argument"),
    }


# Typer's own kind of command.
def _leaves(command: Any, hidden: bool) -> Iterator[tuple[Any, bool]]:  # noqa: ANN401
    hidden = hidden or command.hidden
    inner = getattr(command, "commands", {}).values()
    if not inner:
        yield command, hidden
    for subcommand in inner:
        yield from _leaves(subcommand, hidden)


if __name__ == "__main__":
    print(json.dumps(_counted()))
