"""A run whose job file in the log is incomplete holds up no other, and `stop` ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any, cast

import pytest

from spotctl.files.job.reader import restored
from spotctl.home.config import Settings
from spotctl.home.errors import UnreadableJob
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from spotctl.show.costs.cost import Report
from spotctl.show.ui.server import BegunCommands, HomePages
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.test_loss import OTHER, damaged, ended
from tests.spotctl.show.costs.made import NIGHT, write_log

RUN = "odd-00000c"
INCOMPLETE = {"name": "odd", "kind": "command", "resources": {"clouds": ["local"]}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A job that has ended, and one that was interrupted before it had machines."""
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(OTHER, "tune", provider="local")], home)
    with EventLog(home / "log.sqlite") as opened:
        opened.append(RUN, NIGHT, ev.RunBegan("odd", "local", INCOMPLETE, "", NIGHT))
    return home / "log.sqlite"


WHY = "job odd: its job file in the log cannot be read: run: is missing"


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
def test_status_shows_the_others_and_names_it(log: Path, is_damaged: bool) -> None:
    if is_damaged:
        damaged(log, "MachineRan", OTHER)
    shown = spotctl("status")
    assert shown.code == int(is_damaged)
    assert [line.split()[0] for line in shown.out.splitlines() if "-0000" in line] == [
        "tune",
        "odd",
    ]
    (line,) = [line for line in shown.err.splitlines() if WHY in line]
    assert line.endswith(f"'spotctl stop odd' returns what the clouds show of run {RUN}")
    answer = spotctl("status", "--json")
    assert answer.code == int(is_damaged)
    tune, odd = answer.json["jobs"]
    assert odd["unreadable"].startswith(WHY)
    assert "unreadable" not in tune


def test_the_picture_and_the_page_of_it_say_so(log: Path) -> None:
    """A job from a damaged log, or of a later version, is shown as far as its events go."""
    shown = spotctl("status", "odd", "--watch")
    ways = f"'spotctl stop odd' returns what the clouds show of run {RUN}\n"
    assert (shown.code, shown.err.startswith(WHY), shown.err.endswith(ways)) == (0, True, True)
    assert RUN in shown.out
    both = spotctl("status", "--watch")
    assert (both.code, RUN in both.out, WHY in both.err) == (0, True, True)
    no_costs, no_day = (
        cast("Callable[[str, str], Report]", None),
        cast("Callable[[], Report]", None),
    )
    with closing(
        HomePages(Settings(log.parent), set, list, no_costs, no_day, BegunCommands(log.parent))
    ) as pages:
        page = pages.answer("run/odd", "")
    assert page is not None
    assert all(words in unescape(page) for words in (f"{RUN}: ", WHY))


def test_reports_and_searches_go_on(log: Path) -> None:
    assert log.exists()
    assert spotctl("report", "cost", "--local").code == 0
    found = spotctl("gc", "--cloud", "local")
    assert (found.code, found.err) == (0, "0 orphaned resources\n")


@pytest.mark.parametrize("words", [("odd",), ("--all",)])
def test_stop_ends_it(log: Path, words: tuple[str, ...]) -> None:
    stopped = spotctl("stop", *words)
    assert WHY in stopped.err
    assert "were returned" in stopped.err
    with EventLog(log) as opened:
        last = opened.of_run(RUN)[-1].event
    assert isinstance(last, ev.RunEnded)
    assert (last.outcome, last.message.startswith(WHY)) == ("stopped", True)
    again = spotctl("status")
    assert (again.code, WHY in again.err) == (0, False)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": "odd"},
        {"name": "odd", "kind": "unknown"},
        {**INCOMPLETE, "run": "true", "resources": 5},
        {**INCOMPLETE, "run": "true", "resources": {"machines": {"a": 1}}},
        {**INCOMPLETE, "run": ["true"]},
        {**INCOMPLETE, "run": "true", "checkpoint": [1]},
        {**INCOMPLETE, "run": "true", "budget": []},
        {**INCOMPLETE, "run": "true", "of a later version": 1},
    ],
)
def test_whatever_is_wrong_with_a_job_is_one_error(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableJob, match=r"^job (odd|\?): its job file in the log cannot be read: "
    ):
        restored(content, tmp_path)
