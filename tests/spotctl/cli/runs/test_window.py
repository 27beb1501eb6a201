"""A terminal is a window: whatever happens to it, the run goes on, unless its user asks to stop
it."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.home.paths import Paths
from spotctl.log.jobs import is_running, runner_of
from spotctl.log.state import RunState
from tests.samples import WINDOW
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, state_of
from tests.spotctl.terminals import CTRL_C, terminal
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at the processes in /proc")

ASKED = "leave it running (l)"
BEGUN, GO = "begun", "go"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of the runs. No runner is left."""
    home = tmp_path / "home"
    yield home
    if (home / "locks").is_dir():
        assert not is_running(Paths(home).locks, "small")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A command that begins, and ends once it may."""
    return command(
        tmp_path, f"touch {BEGUN}; until [ -e {GO} ]; do sleep 0.1; done; exit $(cat {GO})"
    )


def began(job: Path) -> None:
    eventually((job.parent / BEGUN).exists)


def may_end(job: Path, code: int = 0) -> None:
    part = job.parent / "part"
    part.write_text(str(code))
    part.rename(job.parent / GO)


def ended(home: Path) -> RunState:
    eventually(
        lambda: state_of(home).ended is not None and not is_running(Paths(home).locks, "small")
    )
    state = state_of(home)
    assert state.machines
    assert not state.alive
    return state


def outcome(home: Path) -> str:
    end = ended(home).ended
    assert end is not None
    return end.outcome


@WINDOW
@pytest.mark.parametrize(("code", "word"), [(0, "done"), (3, "failed")])
def test_a_window_shows_the_run_and_returns_its_exit_code(
    job: Path, home: Path, code: int, word: str
) -> None:
    with terminal("launch", job, "--yes") as window:
        window.wait_for("the run goes on if this window is closed")
        began(job)
        window.wait_for("rented 1 x c4.2xlarge")
        may_end(job, code)
        assert window.exit_code() == min(code, 1)
    assert "All machines returned" in window.screen
    assert f"{state_of(home).run}: {word}" in window.screen
    assert outcome(home) == word
    assert not list((home / "runners").iterdir()), "a runner without last words leaves no file"


@WINDOW
@pytest.mark.parametrize("how", ["closed", "killed", "terminated"])
def test_a_run_goes_on_without_its_window(job: Path, home: Path, how: str) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        if how == "closed":
            window.close()
        else:
            window.command.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        window.command.wait(300)
    assert is_running(Paths(home).locks, "small")
    may_end(job)
    assert outcome(home) == "done"


@WINDOW
def test_ctrl_c_asks_and_a_second_one_leaves(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        window.type(CTRL_C)
        window.wait_for(ASKED)
        window.type(CTRL_C)
        assert window.exit_code() == 0
    assert (
        f"run {state_of(home).run} goes on: 'spotctl resume small' shows it again" in window.screen
    )
    may_end(job)
    assert outcome(home) == "done"


@WINDOW
def test_after_ctrl_c_one_may_go_on_watching_or_stop(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        window.wait_for("machines 0 reliable + 1 spot")
        window.type(CTRL_C)
        window.wait_for("stop and return 1 machine (s)")
        window.type("\n")
        eventually(lambda: window.screen.rpartition(ASKED)[2].count("1 spot"))
        window.type(CTRL_C)
        eventually(lambda: window.screen.count(ASKED) == 2)
        window.type("s\n")
        assert window.exit_code() == 0
    assert "stopped: returning 1 machine" in window.screen
    assert outcome(home) == "stopped"


@WINDOW
def test_a_window_can_be_opened_again(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        window.type(CTRL_C)
        window.wait_for(ASKED)
        window.type("l\n")
        assert window.exit_code() == 0
    assert "'spotctl resume small' shows run" in spotctl("status", "small").err
    assert spotctl("resume", "small").code == 6, "without a terminal nothing is shown"
    with terminal("resume", "small") as window:
        window.wait_for("this command only watches")
        window.wait_for("1 spot")
        may_end(job, 3)
        assert window.exit_code() == 1
    assert f"{state_of(home).run}: failed" in window.screen


@WINDOW
def test_a_window_says_that_its_runner_was_killed_and_how_to_continue(
    job: Path, home: Path
) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        window.wait_for("1 spot")
        runner = runner_of(Paths(home).locks, "small")
        assert runner is not None
        os.kill(runner, signal.SIGKILL)
        assert window.exit_code() == 1
    said = " ".join(window.screen.split())
    assert "the runner was killed: run small-" in said
    assert "'spotctl resume small' continues it" in said
    assert "'spotctl resume small' continues it" in spotctl("status", "small").err
    may_end(job)
    with terminal("resume", "small") as window:
        assert window.exit_code() == 0
    assert outcome(home) == "done"


@WINDOW
def test_a_window_and_its_runner_may_sleep(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        runner = runner_of(Paths(home).locks, "small")
        assert runner is not None
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(window.command.pid, number)
            os.kill(runner, number)
        os.kill(window.command.pid, signal.SIGSTOP)
        may_end(job)
        assert outcome(home) == "done"
        os.kill(window.command.pid, signal.SIGCONT)
        assert window.exit_code() == 0
    assert f"{state_of(home).run}: done" in window.screen


@WINDOW
def test_a_refusal_is_the_line_of_the_foreground(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        with terminal("launch", job, "--yes") as second:
            assert second.exit_code() == 6
        assert "spotctl: job small is already running as process" in " ".join(second.screen.split())
        may_end(job)
        assert window.exit_code() == 0
    assert outcome(home) == "done"


@WINDOW
def test_a_job_that_is_refused_starts_no_runner(tmp_path: Path, home: Path) -> None:
    path = command(tmp_path, "true")
    path.write_text(path.read_text().replace("c4.2xlarge", "no.such"))
    with terminal("launch", path, "--yes") as window:
        code = window.exit_code()
    refused = spotctl("launch", path, "--yes")
    # On a busy computer, the progress of the planning was shown before.
    assert (code, window.screen.replace("\n", "").endswith(refused.err.replace("\n", ""))) == (
        refused.code,
        True,
    )
    assert not home.exists() or not (home / "runners").exists()


@WINDOW
def test_in_the_foreground_a_closed_terminal_stops_the_run(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes", "--foreground") as window:
        began(job)
        window.close()
        window.command.wait(300)
    assert outcome(home) == "stopped"


@WINDOW
def test_a_runner_that_is_asked_to_end_returns_its_machines(job: Path, home: Path) -> None:
    with terminal("launch", job, "--yes") as window:
        began(job)
        runner = runner_of(Paths(home).locks, "small")
        assert runner is not None
        os.kill(runner, signal.SIGHUP)
        assert window.exit_code() == 0
    assert outcome(home) == "stopped"


@WINDOW
def test_one_key_opens_the_page_which_ends_with_the_window(
    job: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question after Ctrl-C is answered with whole lines, as before."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with terminal("launch", job, "--yes") as window:
        began(job)
        window.wait_for("u opens the page of all runs")
        window.type("xu")
        window.wait_for("http://127.0.0.1:")
        eventually((tmp_path / "asked").exists)
        (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+/[-\w]+/", window.screen))
        with urllib.request.urlopen(f"{address}run/small") as page:
            assert "resume small --budget" in page.read().decode()
        window.type(CTRL_C)
        window.wait_for(ASKED)
        window.type("l\n")
        assert window.exit_code() == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)
    may_end(job)
    assert outcome(home) == "done"
