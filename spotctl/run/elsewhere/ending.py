"""Ends a run whose runner lives elsewhere, through the runner or in its place, and removes what the run leaves."""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from spotctl.agent.blobs.locations import place_of
from spotctl.clouds.base import CloudProvider
from spotctl.clouds.capabilities import RentingProvider
from spotctl.clouds.errors import ProviderError
from spotctl.home.paths import Paths
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.run.elsewhere.client import RunnerClient
from spotctl.run.elsewhere.errors import RunnerLost
from spotctl.run.elsewhere.fence import SETTLE_SECONDS, Fence, Watch, settle
from spotctl.run.elsewhere.fenced_provider import FencedProvider
from spotctl.run.elsewhere.log_copy import LogCopier, add_missing
from spotctl.run.launcher_identity import LAUNCHER
from spotctl.run.start import runs
from spotctl.run.start.observing import RunEnd, RunObserver

_CALL_SECONDS, _LOOK_SECONDS = 30.0, 5.0
LEFTOVER_SECONDS = 90.0


def stop(client: RunnerClient, on_turn: Callable[[RunState], None], note: Callable[[str], None]) -> RunEnd:
    """Stops a run and returns its machines. If the runner is gone, this process takes its place."""
    try:
        _ask(client, note)
        ending = client.follower.follow(on_turn, lambda: False, note)
        assert ending is not None
    except RunnerLost as error:
        note(str(error))
        ending = take_over(client, on_turn, note)
    close(client)
    return ending


def take_over(client: RunnerClient, on_turn: Callable[[RunState], None], note: Callable[[str], None]) -> RunEnd:
    """Becomes the runner, and ends the run: returns every machine that the copied log or the cloud knows."""
    gone = _is_gone(client)
    if not gone:
        _wait_until_silent(client, note)
    fence = Fence(client.place.claim(LAUNCHER), "")
    if not gone:
        note(f"waiting {SETTLE_SECONDS:.0f} s: machines that its runner has just ordered may still appear")
        settle(fence)
    start = len(client.follower.rows())
    own_log, run = _own_log(client), client.place.run
    copier = LogCopier(client.place.store(LAUNCHER), own_log, run, fence.epoch, start)

    def fenced(provider: CloudProvider) -> CloudProvider:
        return FencedProvider(cast("RentingProvider", provider), fence, copier.copy, "", lambda: False, 0)

    ending = runs.resume(client.place.job, client.settings, RunObserver(on_turn=on_turn), runs.ON_REQUEST, fenced)
    with suppress(OSError):
        copier.copy()
        fence.renew(ended=True)
    client.follower.add(own_log)
    return ending


def refresh(client: RunnerClient) -> set[str]:
    """Reads the state of a run; returns the run if a runner attends to it. Removes what an ended run left.

    RunnerLost: the state cannot be read, or the runner has failed.
    """
    state = client.follower.state()
    if state.ended is not None:
        close(client, 0.0)
        return set()
    client.runner()
    return {client.place.run}


def close(client: RunnerClient, seconds: float = LEFTOVER_SECONDS) -> None:
    """Fetches what the machines of an ended run printed, and removes what the runner's machine was still using.

    Once nothing of the run is left elsewhere, its home with its keys is removed. If that takes longer than `seconds`,
    the next command tries again.
    """
    give_up = time.monotonic() + seconds
    while not (nothing_left := _nothing_left(client)) and time.monotonic() <= give_up:
        time.sleep(_LOOK_SECONDS)
    # The runner copies the output after the end of the run is in the log, and before its machine is gone.
    _fetch_output(client)
    if nothing_left:
        shutil.rmtree(client.settings.home, ignore_errors=True)


def _nothing_left(client: RunnerClient) -> bool:
    try:
        if client.machines():
            return False
        client.provider.remove(client.provider.resources(client.tags))
        return not client.provider.resources(client.tags)
    except ProviderError:
        return False


def _fetch_output(client: RunnerClient) -> None:
    folder = Paths(client.follower.settings.home).output(client.place.run)
    try:
        place = place_of(f"{client.place.location}/output", LAUNCHER)
        assert place is not None
        for key in place.bucket.list(place.prefix):
            path = folder / key.rpartition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(place.bucket.get(key)))
    except OSError:
        # The output stays in the object store.
        return


def _ask(client: RunnerClient, note: Callable[[str], None]) -> None:
    """Asks the runner to stop, again and again until the runner has heard."""
    while not client.ask(["stop", client.place.job], _CALL_SECONDS):
        state = client.follower.state()
        if state.stopping is not None or state.ended is not None:
            return
        if _is_gone(client):
            raise RunnerLost(f"run {client.place.run}: the machine of its runner is gone")
        note("its runner has not answered yet")


def _is_gone(client: RunnerClient) -> bool:
    """Whether the runner's machine is gone, or there never was one. False if the cloud does not say."""
    try:
        runner = client.runner()
        return all(machine.id != runner for machine in client.machines())
    except RunnerLost:
        return True
    except ProviderError:
        return False


def _wait_until_silent(client: RunnerClient, note: Callable[[str], None]) -> None:
    """Returns once the runner has not renewed its claim for so long that it can be replaced."""
    watch, noted = Watch(), False
    while True:
        claim = client.follower.claim()
        if claim is None or claim.failure or watch.is_stale(claim, time.monotonic()) or _is_gone(client):
            return
        if not noted:
            note("waiting until its runner counts as lost")
            noted = True
        time.sleep(_LOOK_SECONDS)


def _own_log(client: RunnerClient) -> Path:
    """The log of the run's home, which has all rows now."""
    path = Paths(client.settings.home).log
    with EventLog(path) as log:
        add_missing(log, client.place.run, client.follower.rows())
    return path
