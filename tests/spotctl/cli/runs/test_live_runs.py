"""Ctrl-C while a command waits for runs: it is noticed at once, and what it leaves is named.

`launch --output script` and `--json-lines`: lines on stdout while runs go on.
"""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.cli.runs.live_runs import live_view
from spotctl.cli.session import Session
from spotctl.home.errors import Interrupted
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.ledger.same_work import final_figures
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.samples import WINDOW
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, state_of
from tests.spotctl.show.runs.made_up_run import at, run_events
from tests.spotctl.terminals import terminal
from tests.waiting import eventually

FEW_WINDOWS = pytest.mark.usefixtures("few_windows")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def logged(session: Session) -> RunState:
    with EventLog(Paths(session.settings.home).log) as log:
        beginning = log.beginnings()[-1].event
        assert isinstance(beginning, ev.RunBegan)
        state = latest_run(log, beginning.job)
    assert state is not None
    return state


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of stderr, which is no terminal here, without the time at which each begins."""
    lines = [line.split(" ", 1) for line in capsys.readouterr().err.splitlines()]
    assert all(TIME.fullmatch(time) for time, _ in lines)
    return [text for _, text in lines]


def test_without_a_terminal_each_event_is_a_line(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_view(session) as observer:
        observer.on_turn(logged(session))
        observer.on_turn(logged(session))
        assert len(said(capsys)) == 2
        with EventLog(Paths(session.settings.home).log) as log:
            for minutes, event in run_events()[5:]:
                log.append("small-1", at(minutes), event)
        observer.on_turn(logged(session))
    lines = said(capsys)
    assert "eviction warning: 3 x c4.xlarge (sim-east-b)" in lines
    assert "evicted: 3 x c4.xlarge (sim-east-b)" in lines


def test_a_closed_terminal_stops_a_run_and_leaves_its_process(session: Session) -> None:
    """Its machines would run until their leases end."""
    with live_view(session) as observer:
        observer.on_turn(logged(session))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        eventually(lambda: logged(session).stopping is not None)


def test_nohup_keeps_its_meaning(session: Session) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with live_view(session) as observer:
            observer.on_turn(logged(session))
            os.kill(os.getpid(), signal.SIGHUP)
            observer.on_turn(logged(session))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert logged(session).stopping is None


def test_ctrl_c_reaches_a_run_whose_turn_does_not_end(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_view(session) as observer:
        observer.on_turn(logged(session))
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: logged(session).stopping is not None)
    machines = len(logged(session).alive)
    assert said(capsys)[-1:] == [
        f"stopping, and returning {machines} machines; Ctrl-C again ends this command at once, and "
        "leaves the machines rented until their leases end"
    ]


def test_it_is_noticed_once_and_before_the_first_machine(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    state = replace(logged(session), machines={})
    with live_view(session) as observer:
        observer.on_turn(state)
        os.kill(os.getpid(), signal.SIGINT)
        observer.on_turn(state)
        observer.on_turn(state)
    assert said(capsys)[2:] == ["stopping; Ctrl-C again ends this command at once"]


def test_a_run_that_was_not_asked_to_stop_can_be_resumed(session: Session) -> None:
    def interrupted() -> None:
        with live_view(session) as observer:
            observer.on_turn(logged(session))
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="returns them now, 'spotctl resume small' continues it"):
        interrupted()


def test_before_there_is_a_run_ctrl_c_is_what_it_always_is(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), live_view(session):
        raise KeyboardInterrupt


# -- lines on stdout -------------------------------------------------------------------------------

PRINTS = r"echo one; printf 'two\033[2J\n' >&2; echo three; exit 3"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def own_lines(home: Path) -> list[str]:
    """The lines with their machine: the last one, as others may have been evicted before they
    printed.
    """
    machine = max(state_of(home).machines.values(), key=lambda held: held.started).id
    return [f"{machine}: {text}" for text in ("one", r"two\x1b[2J", "three")]


@FEW_WINDOWS
def test_a_script_s_own_lines_have_their_machine(tmp_path: Path, home: Path) -> None:
    ended = spotctl("launch", command(tmp_path, PRINTS), "--yes", "--output", "script")
    assert ended.code == 1
    lines = ended.out.splitlines()
    end = lines.index(own_lines(home)[-1]) + 1
    assert lines[end - 3 : end] == own_lines(home)
    assert lines[end].startswith(f"{state_of(home).run}: failed")
    assert "rented 1 x c4.2xlarge" in ended.err


@FEW_WINDOWS
@WINDOW
def test_a_window_shows_them_too(tmp_path: Path, home: Path) -> None:
    with terminal("launch", command(tmp_path, PRINTS), "--yes", "--output", "script") as window:
        assert window.exit_code() == 1
    assert all(line in window.screen for line in own_lines(home))


@FEW_WINDOWS
def test_each_event_is_a_line_of_json_and_the_answer_is_the_last(
    tmp_path: Path, home: Path
) -> None:
    ended = spotctl("launch", command(tmp_path, PRINTS), "--yes", "--json-lines")
    assert ended.code == 1
    lines = [json.loads(line) for line in ended.out.splitlines()]
    state = state_of(home)
    assert state.ended is not None
    assert {(line["job"], line["run"]) for line in lines} == {("small", state.run)}
    events = [line["event"] for line in lines]
    assert events[0] == "RunBegan"
    assert {"RentIntended", "Rented", "AttemptBegan", "StopRequested", "MachineEnded"} <= set(
        events
    )
    assert events[-2:] == ["RunEnded", "Answer"]
    assert lines[-1]["fields"] == final_figures(state, state.ended)


@FEW_WINDOWS
@WINDOW
def test_the_lines_of_several_jobs_name_them(tmp_path: Path) -> None:
    paths = []
    for name in ("first", "second"):
        path = command(tmp_path, f"echo I am {name}").rename(tmp_path / f"{name}.yaml")
        path.write_text(path.read_text().replace("small", name))
        paths.append(path)
    ended = spotctl("launch", *paths, "--yes", "--output", "script")
    assert ended.code == 0
    for name in ("first", "second"):
        (line,) = (line for line in ended.out.splitlines() if line.endswith(f": I am {name}"))
        assert line.startswith(f"{name} ")
    answers = [
        line
        for text in spotctl("launch", *paths, "--yes", "--json-lines").out.splitlines()
        if (line := json.loads(text))["event"] == "Answer"
    ]
    assert {answer["job"] for answer in answers} == {"first", "second"}


@FEW_WINDOWS
def test_a_refused_job_prints_no_line(tmp_path: Path) -> None:
    path = command(tmp_path, "true")
    path.write_text(path.read_text().replace("c4.2xlarge", "no.such"))
    refused = spotctl("launch", path, "--yes", "--json-lines")
    assert (refused.code, refused.out) == (2, "")
