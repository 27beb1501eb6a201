"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bidbrain.queue.values import QueueRound
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from
from spotctl.log import events as ev
from spotctl.log.jobs import JobLock
from spotctl.log.queue import LOCAL, JobsQueued
from spotctl.log.store import EventLog
from spotctl.run.start.shared_queue import SharedQueue
from spotctl.run.turn.execute import Journal
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    MARKETS,
    ON_DEMAND,
    START,
)

QUOTAS = "local/sim-east/c4=16, local/sim-east/c4 on demand=8"


@dataclass
class Home:
    """A home with a market whose clock the test sets, and jobs whose launchers are at work."""

    settings: Settings
    now: int = START
    locks: dict[str, JobLock] = field(default_factory=dict)

    @property
    def paths(self) -> Paths:
        return Paths(self.settings.home)

    def queue(self, settings: Settings | None = None) -> SharedQueue:
        return SharedQueue(settings or self.settings, LOCAL, lambda: self.now)

    def attend(self, *names: str) -> None:
        for name in names:
            self.locks[name] = JobLock(self.paths.locks, name)

    def leave(self, name: str) -> None:
        """The launcher of a job is gone."""
        self.locks.pop(name).__exit__(None, None, None)

    def begins(self, name: str, machines: int, *, intent: int = 1) -> None:
        """A run of a job, which holds machines with one lease."""
        with EventLog(self.paths.log) as log:
            journal = Journal(log, f"{name}-1", lambda: self.now)
            journal.write(ev.RunBegan(name, "local", {}, "", 0, None, QUOTAS))
            until = self.now + LEASE_TIMES.lease
            journal.write(
                ev.RentIntended(intent, MARKETS[0], machines, 1, ON_DEMAND, 4.0, False, until)
            )
            journal.write(
                ev.Rented(
                    intent, tuple(ev.Granted(f"{name}-{i}", self.now) for i in range(machines))
                )
            )

    def last_round(self) -> QueueRound:
        with EventLog(self.paths.log) as log:
            last = log.queued(LOCAL, JobsQueued()).last
        assert last is not None
        return last


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(Settings(home=tmp_path, quotas=quotas_from(QUOTAS)))
    yield made
    for name in list(made.locks):
        made.leave(name)
