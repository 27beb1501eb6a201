"""A standby on another machine of the run: it has all that a runner needs, and takes over when the runner is gone."""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from agileml.errors import AgileMLError
from pricing_data.errors import PricingDataError
from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.blobs.conditional import SharedObject
from spotctl.clouds.capabilities import TakesCommands
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.home.paths import Paths
from spotctl.log.folding import fold
from spotctl.log.state import Held, RunState
from spotctl.log.store import EventLog
from spotctl.run.elsewhere.fence import Claim, Watch
from spotctl.run.elsewhere.homes import copy_home
from spotctl.run.elsewhere.installing import RunnerArchives, RunnerMachine
from spotctl.run.elsewhere.runner_start import JOB, RunnerStart

LOOK_SECONDS = 15.0
LOOKS_PER_CHECK = 4
"""Looks from one check to the next whether the standby still runs on its machine: each check needs a connection."""


def host_of(state: RunState, runner: str, now_on: str | None) -> str | None:
    """The machine that should hold the standby: the present one while it lasts, else a reliable or the oldest one."""

    def lasts(held: Held) -> bool:
        leaves = held.returning or held.warned_until is not None or state.leaves_at(held) is not None
        return held.running and not leaves and held.id != runner

    able = [held for held in state.alive if lasts(held)]
    if any(held.id == now_on for held in able):
        return now_on
    able.sort(key=lambda held: (not state.allocations[held.allocation].reliable, held.started, held.id))
    return able[0].id if able else None


def is_due(
    cell: SharedObject,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Waits until the runner is gone; False if there is nothing to take over any more."""
    watch = Watch()
    while True:
        try:
            stored = cell.read()
        except StoreRefused:
            # Without an answer nothing is known of the runner.
            watch = Watch()
        else:
            claim = None if stored is None else Claim.from_bytes(stored.data)
            if claim is None or claim.ended or claim.failure:
                return False
            if watch.is_stale(claim, clock()):
                return True
        sleep(LOOK_SECONDS)


class StandbyKeeper:
    """Keeps a standby on one of the other machines of the run, as long as there is one."""

    def __init__(self, start: RunnerStart, settings: Settings, note: Callable[[str], None]) -> None:
        self._start, self._settings, self._note = start, settings, note
        self._now_on: str | None = None
        self._target: RunnerMachine | None = None
        self._looks = 0

    def run(self, stop: threading.Event) -> None:
        """Looks after the standby until `stop` is set. A failure is noted, and the next look tries again."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.turn()
            except (SpotctlError, AgileMLError, PricingDataError, OSError) as error:
                self._note(f"no standby yet: {error}")

    def turn(self) -> None:
        with EventLog(Paths(self._settings.home).log) as log:
            state = fold(log.of_run(self._start.run))
        wanted = None if state.stopping is not None else host_of(state, self._start.machine, self._now_on)
        self._looks += 1
        if wanted is not None and (wanted != self._now_on or self._target is None):
            self._target = None
            self._target = self._install(state, wanted)
        elif wanted is not None and self._looks % LOOKS_PER_CHECK == 0:
            self._check(wanted)
        self._now_on = wanted

    def _check(self, machine: str) -> None:
        """Starts the standby again if it has died; a standby that runs ignores this. If the start fails, the next look
        installs the standby again."""
        target, self._target = self._target, None
        assert target is not None
        target.start(self._start_on(machine))
        self._target = target

    def _start_on(self, machine: str) -> RunnerStart:
        return RunnerStart(
            self._start.job, self._start.run, self._start.location, machine, self._start.secrets, standby=True
        )

    def _install(self, state: RunState, machine: str) -> RunnerMachine:
        assert state.began is not None
        home, run = self._settings.home, self._start.run
        spec = restored(state.began.spec, home)
        # The standby gets a provider of its own: the run's provider belongs to the run's thread.
        target = RunnerMachine(machine, cast("TakesCommands", provider_of(self._settings, spec)), self._note)
        with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
            copy = Path(scratch) / "home"
            copy_home(self._settings, run, JOB, copy)
            target.install(RunnerArchives.read_received())
            target.give_home(copy)
        self._note("starting the standby")
        target.start(self._start_on(machine))
        return target
