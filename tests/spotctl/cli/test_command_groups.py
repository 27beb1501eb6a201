"""Removed names, and pages of help that need not import all commands."""

from __future__ import annotations

import pytest

from spotctl.cli.app import app
from spotctl.cli.command_groups import REMOVED, named_part
from tests.spotctl.approvals import Approved
from tests.spotctl.cli.test_app_help import ROOT, every
from tests.spotctl.command_line import spotctl


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


@pytest.mark.parametrize("words", [(), ("prices",), ("report",), ("lab", "prices")], ids=" ".join)
def test_a_page_that_lists_commands_is_that_of_the_whole_app(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*words, "--help"]
    named_part(app, asked)(asked, prog_name="spotctl", standalone_mode=False)
    shown = capsys.readouterr().out
    app(asked, prog_name="spotctl", standalone_mode=False)
    assert shown == capsys.readouterr().out
