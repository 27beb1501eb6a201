"""Every command: help with an example that can be typed as it stands, `--json`, and what shells
complete.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import typer

from spotctl.cli.app import app
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

ROOT: Any = typer.main.get_command(app)


@dataclass(frozen=True)
class Command:
    """A command, and the words that lead to it."""

    words: tuple[str, ...]
    found: Any

    @property
    def examples(self) -> list[str]:
        """What its help says to type."""
        told = re.findall(
            r"^\s*Example: (spotctl .*?)(?:\n\s*\n|\Z)",
            self.found.help or "",
            re.MULTILINE | re.DOTALL,
        )
        return [
            part.partition(" > ")[0] for one in told for part in " ".join(one.split()).split(" && ")
        ]


# Typer's own classes.
def commands(group: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[Command]:  # noqa: ANN401
    """The commands that help shows."""
    for name, found in getattr(group, "commands", {}).items():
        if found.hidden:
            continue
        if hasattr(found, "commands"):
            yield from commands(found, (*words, name))
        else:
            yield Command((*words, name), found)


ALL = pytest.mark.parametrize(
    "command", [pytest.param(one, id="-".join(one.words)) for one in commands()]
)


def test_help_of_one_screen_lists_what_is_needed_daily() -> None:
    shown = [command for command in commands() if command.words[0] != "lab"]
    assert len(shown) <= 27
    assert len(spotctl("--help", COLUMNS="80").out.splitlines()) <= 48
    for name in "init plan launch status logs stop report doctor prices nightly log lab".split():
        assert f"│ {name} " in spotctl("--help", COLUMNS="80").out


def test_the_surface_is_small() -> None:
    """Decided with the third house: a command or an option more needs another one less, or an issue
    that names it, as the four of `launch` that replace keys of a file, and `setup` with its own. `plan
    --check` has none: only there a plan may ask a cloud."""
    everything = list(commands())
    options = [
        option
        for command in everything
        for option in command.found.get_params(typer.Context(command.found))
        if option.param_type_name == "option" and option.name != "help"
    ]
    assert len(everything) <= 50
    assert len(options) <= 294
    assert not [option.name for option in options if option.hidden]


# Typer's own classes.
def every(group: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """All commands and groups, hidden ones too."""
    for name, found in getattr(group, "commands", {}).items():
        yield " ".join((*words, name)), found
        yield from every(found, (*words, name))


def test_no_command_is_hidden() -> None:
    assert not [name for name, found in every() if found.hidden]


@ALL
def test_help(command: Command) -> None:
    shown = spotctl(*command.words, "--help", COLUMNS="80")
    assert (shown.code, shown.err) == (0, "")
    assert "--json" in shown.out
    assert "Example: spotctl" in " ".join(shown.out.split())
    assert max(map(len, shown.out.splitlines())) <= 80
    assert not re.search(r"\[[a-z]+\]", command.found.help), (
        "Rich takes [word] for markup and does not print it"
    )


@ALL
def test_the_example_is_understood(command: Command) -> None:
    """Up to where the command itself would begin. It is an example of this command."""
    assert command.examples
    assert any(
        example.split()[1 : 1 + len(command.words)] == list(command.words)
        for example in command.examples
    )
    for example in command.examples:
        words = shlex.split(example)[1:]
        context, found = ROOT.make_context("spotctl", list(words)), ROOT
        while hasattr(found, "commands"):
            rest = [*context._protected_args, *context.args]
            name, found, rest = found.resolve_command(context, rest)
            context = found.make_context(name, rest, parent=context)
        assert not context.args


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["launch"],
        ["launch", "job.yaml", "--max-costs", "3"],
        ["prices", "shw"],
        ["exec", "job"],
    ],
)
def test_what_is_not_understood_is_one_line(words: list[str], approved: Approved) -> None:
    refused = spotctl(*words)
    approved(refused)
