"""Every command: help with an example that can be typed as it stands, `--json`, and what shells
complete.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from spotctl.cli.app import app
from spotctl.cli.command_groups import REMOVED, named_part
from spotctl.home.errors import BadRequest
from spotctl.log.events import RunBegan
from spotctl.log.store import EventLog
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
    assert len(shown) <= 26
    assert len(spotctl("--help", COLUMNS="80").out.splitlines()) <= 48
    for name in "init plan launch status logs stop report doctor prices nightly log lab".split():
        assert f"│ {name} " in spotctl("--help", COLUMNS="80").out


def test_the_surface_is_small() -> None:
    """Decided with the third house: a command or an option more needs another one less. `plan
    --check` has none: only there a plan may ask a cloud."""
    everything = list(commands())
    options = [
        option
        for command in everything
        for option in command.found.get_params(typer.Context(command.found))
        if option.param_type_name == "option" and option.name != "help"
    ]
    assert len(everything) <= 50
    assert len(options) <= 282
    assert not [option.name for option in options if option.hidden]


# Typer's own classes.
def every(group: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """All commands and groups, hidden ones too."""
    for name, found in getattr(group, "commands", {}).items():
        yield " ".join((*words, name)), found
        yield from every(found, (*words, name))


def test_no_command_is_hidden() -> None:
    assert not [name for name, found in every() if found.hidden]


@pytest.mark.parametrize(("name", "now"), REMOVED.items())
def test_a_removed_name_is_one_line_that_names_the_new_one(name: str, now: str) -> None:
    known = dict(every())
    *command, last = name.split()
    assert name not in known
    if last.startswith("--"):
        assert last not in [
            word for option in known[" ".join(command)].params for word in option.opts
        ]
    refused = spotctl("--home", "somewhere", *name.split(), "x", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.error.startswith(
        f"spotctl: {name} is now `spotctl {now}`" if now else f"spotctl: {name} is gone"
    )
    found = ROOT
    for word in now.split():
        if word in getattr(found, "commands", {}):
            found = found.commands[word]
        elif word.startswith("--"):
            assert word in [option for param in found.params for option in param.opts]


def test_what_follows_two_dashes_is_no_removed_name(approved: Approved) -> None:
    approved(spotctl("exec", "job", "--", "down"))
    approved(spotctl("status", "down"))


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


@pytest.mark.parametrize("words", [(), ("prices",), ("report",), ("lab", "prices")], ids=" ".join)
def test_a_page_that_lists_commands_is_that_of_the_whole_app(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*words, "--help"]
    named_part(app, asked)(asked, prog_name="spotctl", standalone_mode=False)
    shown = capsys.readouterr().out
    app(asked, prog_name="spotctl", standalone_mode=False)
    assert shown == capsys.readouterr().out


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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["status", "logs", "stop", "resume", "exec", "ssh"])
def test_shells_complete_the_names_of_jobs(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    with EventLog(home / "log.sqlite") as log:
        for job in ("nightly", "night-owl", "other"):
            log.append(f"{job}-1", 0, RunBegan(job, "local", {}, "", 0))
    assert completed(command, "nig") == ["nightly", "night-owl"]


def test_without_a_log_no_job_is_completed(tmp_path: Path) -> None:
    assert completed("status", "") == []
    assert not (tmp_path / "home").exists()


def completed(command: str, begun: str) -> list[str]:
    environment = {
        **os.environ,
        "_SPOTCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"spotctl {command} {begun}",
        "COMP_CWORD": "2",
    }
    script = "from spotctl.cli.app import main; main([])"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    return ran.stdout.split()


def test_a_place_makes_resume_attach_to_the_run_there(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    places: list[str] = []

    def attached(_: object, place: str) -> None:
        places.append(place)
        raise BadRequest("nothing is there")

    monkeypatch.setattr("spotctl.cli.runs.remote_runner.attached", attached)
    approved(spotctl("resume", "s3://bucket/x/spotctl/x-1"))
    assert places == ["s3://bucket/x/spotctl/x-1"]
