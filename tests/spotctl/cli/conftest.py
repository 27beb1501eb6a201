"""Fixtures of the tests in this folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.cli.session import Session
from spotctl.home.paths import Paths
from spotctl.log.store import EventLog
from tests.spotctl.show.runs.made_up_run import at, run_events
from tests.spotctl.show.runs.test_reading import killed_run


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session with a run in its log. Signals work also where they are ignored: in the background,
    and with nohup.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    with EventLog(Paths(tmp_path).log) as log:
        for minutes, event in run_events()[:5]:
            log.append("small-1", at(minutes), event)
    yield Session(tmp_path)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return killed_run(tmp_path)
