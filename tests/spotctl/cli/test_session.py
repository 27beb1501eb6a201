"""Interrupts of commands that wait."""

from __future__ import annotations

import os
import signal
from threading import Event

import pytest

from spotctl.cli.runs.live_runs import live_view
from spotctl.cli.session import Session
from spotctl.home.errors import Interrupted
from tests.spotctl.cli.runs.test_live_runs import logged, said
from tests.waiting import eventually


def interrupted_twice(session: Session, leaving: Event | None = None) -> None:
    with live_view(session, leaving=leaving) as observer:
        observer.on_turn(logged(session))
        os.kill(os.getpid(), signal.SIGINT)
        if leaving is None:
            eventually(lambda: logged(session).stopping is not None)
        observer.on_turn(logged(session))
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_names_what_stays_rented_and_how_to_return_it(session: Session) -> None:
    with pytest.raises(Interrupted) as raised:
        interrupted_twice(session)
    assert str(raised.value) == (
        "interrupted; run small-1 has 4 machines, rented until their leases end: 'spotctl stop "
        "small' returns them now"
    )


def test_a_command_that_only_watches_ends_no_run(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Event()
    with pytest.raises(Interrupted, match="'spotctl resume small' shows run small-1"):
        interrupted_twice(session, left)
    assert left.is_set()
    assert logged(session).stopping is None
    assert said(capsys)[2:] == ["Ctrl-C again ends this command at once"]
