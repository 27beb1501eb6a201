"""One runner, from its claim to the end of its run: it resumes the run that the log in its home
describes.

Meanwhile it keeps a standby on another machine of the run, which has all that a runner needs, and
takes over when the runner is gone.
"""

import os
import pwd
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from agileml.errors import AgileMLError
from agileml.runtime.blob_store import UnreadableBlob
from pricing_data.errors import PricingDataError
from spotctl.agent.data.locations import MACHINE, SharedObject
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.errors import AgentError
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import ProgramKind
from spotctl.home import config
from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.home.paths import Paths
from spotctl.log.events import StopRequested
from spotctl.log.folding import fold
from spotctl.log.outcomes import FAILED
from spotctl.log.state import Held, RunState
from spotctl.log.store import EventLog
from spotctl.run.following import RunObserver
from spotctl.run.notify import notify_of_alarm, notify_of_end
from spotctl.run.remote_runner import homes
from spotctl.run.remote_runner.fence import (
    BEAT_SECONDS,
    Claim,
    Fence,
    FencedProvider,
    Superseded,
    Watch,
    is_anothers,
    settle,
)
from spotctl.run.remote_runner.homes import (
    LogCopier,
    LogCopy,
    OutputCopier,
    add_missing,
    copy_home,
    fetch_output,
)
from spotctl.run.remote_runner.installing import RunnerMachine
from spotctl.run.remote_runner.place import Admission, RunPlace
from spotctl.run.remote_runner.start import CODE, HOME, JOB, PACKAGES, RENDEZVOUS, RunnerStart
from spotctl.run.start import runs

COPY_SECONDS = 5.0
"""How often the log is copied. Orders are copied before they are placed."""

LOOK_SECONDS = 15.0
LOOKS_PER_CHECK = 4
"""Looks from one check to the next whether the standby still runs on its machine: each check needs
a connection."""


def serve(start: RunnerStart, up: Callable[[], None]) -> None:
    """Runs the run to its end, and then returns this machine. `up` is called once the runner or
    standby is there.
    """
    settings = config.load(os.environ, Path(HOME))
    place = RunPlace(start.job, start.run, start.location)
    paths = Paths(settings.home)
    with EventLog(paths.log) as log:
        began = fold(log.of_run(start.run)).began
    assert began is not None
    spec = restored(began.spec, paths.home)
    homes.restore_rendezvous(Path(RENDEZVOUS), Path(began.folder))
    claim = place.claim(MACHINE)
    stop_with = None

    if start.standby:
        up()
        if not is_due(claim):
            return
        fence = Fence(claim, start.machine)
        settle(fence)
        with EventLog(paths.log) as log:
            add_missing(log, place.run, LogCopy(place.store(MACHINE)).rows())
        if spec.kind is not ProgramKind.COMMAND:
            why = "the machine of its runner is gone, and with it the state of the training"
            stop_with = StopRequested(FAILED, why)
        # What is missing in it is only for people to read.
        with suppress(OSError):
            fetch_output(place.location, paths.output(start.run), MACHINE)
    elif is_anothers(claim, start.machine):
        # A standby took over before this process was started again.
        return
    else:
        fence = Fence(claim, start.machine)
        up()

    _serve(start, settings, place, fence, LeaseTimes.of(spec).lease, stop_with)


def _serve(
    start: RunnerStart,
    settings: config.Settings,
    place: RunPlace,
    fence: Fence,
    lease: int,
    stop_with: StopRequested | None,
) -> None:
    paths = Paths(settings.home)
    store = place.store(MACHINE)
    copier = LogCopier(store, paths.log, start.run, fence.epoch, len(LogCopy(store).rows()))
    own: list[FencedProvider] = []
    stops = _Stops(paths.log, start.run)

    def fenced(provider: CloudProvider) -> CloudProvider:
        own.append(FencedProvider(provider, fence, copier.copy, start.machine, stops, lease))
        return own[-1]

    stop = threading.Event()
    admission = Admission(store, Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "authorized_keys"))
    output = OutputCopier(paths.output(start.run), place.location, fence.hold)
    threading.Thread(target=attend, args=(fence, copier, admission, stop), daemon=True).start()
    threading.Thread(target=output.run, args=(stop,), daemon=True).start()
    threading.Thread(
        target=StandbyKeeper(start, settings, _note).run, args=(stop,), daemon=True
    ).start()
    failure = ""
    observer = RunObserver(
        on_end=lambda *ended: _note("\n".join(sent.text for sent in notify_of_end(*ended)) or None),
        on_alarm=partial(notify_of_alarm, done=_note),
        on_remark=lambda _, line: _note(line),
    )

    try:
        runs.resume(start.job, settings, observer, stop_with, fenced, MACHINE)
    except Superseded:
        raise
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        stop.set()
        with suppress(Superseded):
            _finish(copier, output, fence, failure)

    for provider in own:
        try:
            provider.return_own()
        except ProviderError as error:
            _note(f"this machine ends with its lease, because it cannot be returned: {error}")


class _Stops:
    """Whether a run is to end, from its log."""

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        self._known = False

    def __call__(self) -> bool:
        if not self._known:
            with EventLog(self._path) as log:
                self._known = fold(log.of_run(self._run)).stopping is not None
        return self._known


def attend(fence: Fence, copier: LogCopier, admission: Admission, stop: threading.Event) -> None:
    """Copies the log, renews the claim and admits clients until the run has ended, or another
    runner has taken over.

    If one of these fails, such as reading a log that is being written, the others go on, and it is
    tried again.
    """
    beat = time.monotonic() + BEAT_SECONDS
    while not stop.wait(COPY_SECONDS):
        turns = [copier.copy, admission.turn]
        if time.monotonic() >= beat:
            beat = time.monotonic() + BEAT_SECONDS
            turns.insert(0, fence.renew)
        for turn in turns:
            try:
                turn()
            except Superseded:
                return
            except (OSError, SpotctlError, AgentError, UnreadableBlob) as error:
                _note(f"not done, and tried again in {COPY_SECONDS:.0f} s: {error}")


def _finish(copier: LogCopier, output: OutputCopier, fence: Fence, failure: str) -> None:
    """Completes the copies of the log and of the machines' output, and marks the claim as ended."""
    fence.check()
    for attempt in range(3):
        try:
            copier.copy()
            output.copy()
            fence.renew(ended=not failure, failure=failure)
        except (OSError, AgentError) as error:
            _note(f"the final state of the run cannot be copied: {error}")
            time.sleep(2.0**attempt)
        else:
            return


def _note(what: object) -> None:
    """Writes a line to the service's log."""
    if what is not None:
        print(what, file=sys.stderr, flush=True)  # noqa: T201


def host_of(state: RunState, runner: str, now_on: str | None) -> str | None:
    """The machine that should hold the standby: the present one while it lasts, else a reliable or
    the oldest one.
    """
    able = list[Held]()
    for held in state.alive:
        leaves = (
            held.returning or held.warned_until is not None or state.leaves_at(held) is not None
        )
        if held.running and not leaves and held.id != runner:
            able.append(held)

    if any(held.id == now_on for held in able):
        return now_on

    able.sort(
        key=lambda held: (not state.allocations[held.allocation].reliable, held.started, held.id)
    )
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
        self._start = start
        self._settings = settings
        self._note = note
        self._now_on: str | None = None
        self._target: RunnerMachine | None = None
        self._looks = 0

    def run(self, stop: threading.Event) -> None:
        """Looks after the standby until `stop` is set. A failure is noted, and the next look tries
        again.
        """
        while not stop.wait(LOOK_SECONDS):
            try:
                self.turn()
            except (SpotctlError, AgileMLError, PricingDataError, OSError) as error:
                self._note(f"no standby yet: {error}")

    def turn(self) -> None:
        with EventLog(Paths(self._settings.home).log) as log:
            state = fold(log.of_run(self._start.run))
        wanted = None
        if state.stopping is None:
            wanted = host_of(state, self._start.machine, self._now_on)

        self._looks += 1
        if wanted is not None and (wanted != self._now_on or self._target is None):
            self._target = None
            assert state.began is not None
            home = self._settings.home
            spec = restored(state.began.spec, home)

            # The standby gets a provider of its own: the run's provider belongs to the run's
            # thread.
            target = RunnerMachine(wanted, provider_of(self._settings, spec), self._note)
            with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
                copy = Path(scratch) / "home"
                copy_home(self._settings, self._start.run, JOB, copy)
                # The same archives that this machine received.
                received = {
                    folder: Path(f"{folder}.archive").read_bytes()
                    for folder in (CODE, PACKAGES, JOB, RENDEZVOUS)
                }
                target.install(received)
                target.give_home(copy)

            self._note("starting the standby")
            target.start(replace(self._start, machine=wanted, standby=True))
            self._target = target
        elif wanted is not None and self._looks % LOOKS_PER_CHECK == 0:
            # A standby that has died is started again; one that runs ignores this. If the start
            # fails, the next look installs the standby again.
            known = self._target
            self._target = None
            assert known is not None
            known.start(replace(self._start, machine=wanted, standby=True))
            self._target = known

        self._now_on = wanted
