"""Ctrl-C while a command waits for runs: it is noticed at once, and what it leaves is named."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace

import pytest

from spotctl.cli.runs.live_runs import live_view
from spotctl.cli.session import Session
from spotctl.home.errors import Interrupted
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.spotctl.show.runs.made_up_run import at, run_events
from tests.waiting import eventually

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
