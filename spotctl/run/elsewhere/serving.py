"""One runner, from its claim to the end of its run: resumes the run that the log in its home describes."""

import os
import pwd
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from agileml.runtime.blob_store import UnreadableBlob
from spotctl.agent.blobs.identity import MACHINE
from spotctl.agent.data_transfer import deliver
from spotctl.agent.errors import AgentError
from spotctl.clouds.base import CloudProvider
from spotctl.clouds.capabilities import RentingProvider
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec, ProgramKind
from spotctl.home import config
from spotctl.home.errors import SpotctlError
from spotctl.home.paths import Paths
from spotctl.log.events import Alarm, StopRequested
from spotctl.log.folding import fold
from spotctl.log.outcomes import FAILED
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.run.elsewhere import homes
from spotctl.run.elsewhere.errors import Superseded
from spotctl.run.elsewhere.fence import BEAT_SECONDS, Fence, is_anothers, settle
from spotctl.run.elsewhere.fenced_provider import FencedProvider
from spotctl.run.elsewhere.keys import Admission
from spotctl.run.elsewhere.log_copy import LogCopier, LogCopy, add_missing
from spotctl.run.elsewhere.place import RunPlace
from spotctl.run.elsewhere.runner_start import HOME, RENDEZVOUS, RunnerStart
from spotctl.run.elsewhere.standby import StandbyKeeper, is_due
from spotctl.run.notify.runs import notify_of_alarm, notify_of_end
from spotctl.run.start import runs
from spotctl.run.start.observing import RunObserver

COPY_SECONDS = 5.0
"""How often the log is copied. Orders are copied before they are placed."""


def serve(start: RunnerStart, up: Callable[[], None]) -> None:
    """Runs the run to its end, and then returns this machine. `up` is called once the runner or standby is there."""
    settings = config.load(os.environ, Path(HOME))
    place, paths = RunPlace(start.job, start.run, start.location), Paths(settings.home)
    with EventLog(paths.log) as log:
        began = fold(log.of_run(start.run)).began
    assert began is not None
    spec = restored(began.spec, paths.home)
    homes.restore_rendezvous(Path(RENDEZVOUS), Path(began.folder))
    claim, stop_with = place.claim(MACHINE), None
    if start.standby:
        up()
        if not is_due(claim):
            return
        fence = Fence(claim, start.machine)
        stop_with = _complete_log(place, paths, spec, fence)
    elif is_anothers(claim, start.machine):
        # A standby took over before this process was started again.
        return
    else:
        fence = Fence(claim, start.machine)
        up()
    _serve(start, settings, place, fence, LeaseTimes.of(spec).lease, stop_with)


def _complete_log(place: RunPlace, paths: Paths, spec: JobSpec, fence: Fence) -> StopRequested | None:
    """Completes the log of a standby; returns why the run cannot go on, None if it can."""
    settle(fence)
    with EventLog(paths.log) as log:
        add_missing(log, place.run, LogCopy(place.store(MACHINE)).rows())
    if spec.kind is ProgramKind.COMMAND:
        return None
    return StopRequested(FAILED, "the machine of its runner is gone, and with it the state of the training")


def _serve(
    start: RunnerStart,
    settings: config.Settings,
    place: RunPlace,
    fence: Fence,
    lease: int,
    stop_with: StopRequested | None,
) -> None:
    paths, store = Paths(settings.home), place.store(MACHINE)
    copier = LogCopier(store, paths.log, start.run, fence.epoch, len(LogCopy(store).rows()))
    own: list[FencedProvider] = []
    stops = _Stops(paths.log, start.run)

    def fenced(provider: CloudProvider) -> CloudProvider:
        rented = cast("RentingProvider", provider)
        own.append(FencedProvider(rented, fence, copier.copy, start.machine, stops, lease))
        return own[-1]

    stop = threading.Event()
    admission = Admission(store, Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "authorized_keys"))
    threading.Thread(target=attend, args=(fence, copier, admission, stop), daemon=True).start()
    threading.Thread(target=StandbyKeeper(start, settings, _note).run, args=(stop,), daemon=True).start()
    failure = ""
    observer = RunObserver(
        on_end=lambda *end: _note(notify_of_end(*end)), on_alarm=_warn, on_remark=lambda _, line: _note(line)
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
            _finish(place, paths, copier, fence, failure)
    for provider in own:
        _return_machine(provider)


class _Stops:
    """Whether a run is to end, from its log."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._known = False

    def __call__(self) -> bool:
        if not self._known:
            with EventLog(self._path) as log:
                self._known = fold(log.of_run(self._run)).stopping is not None
        return self._known


def attend(fence: Fence, copier: LogCopier, admission: Admission, stop: threading.Event) -> None:
    """Copies the log, renews the claim and admits clients until the run has ended, or another runner has taken over.

    If one of these fails, such as reading a log that is being written, the others go on, and it is tried again.
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


def _finish(place: RunPlace, paths: Paths, copier: LogCopier, fence: Fence, failure: str) -> None:
    """Completes the copies of the log and of the machines' output, and marks the claim as ended."""
    fence.check()
    for attempt in range(3):
        try:
            copier.copy()
            if paths.output(place.run).is_dir():
                deliver(paths.output(place.run), f"{place.location}/output")
            fence.renew(ended=not failure, failure=failure)
        except (OSError, AgentError) as error:
            _note(f"the final state of the run cannot be copied: {error}")
            time.sleep(2.0**attempt)
        else:
            return


def _return_machine(provider: FencedProvider) -> None:
    try:
        provider.return_own()
    except ProviderError as error:
        _note(f"this machine ends with its lease, because it cannot be returned: {error}")


def _warn(spec: JobSpec, state: RunState, alarm: Alarm) -> None:
    notify_of_alarm(spec, state, alarm, _note)


def _note(what: object) -> None:
    """Writes a line to the service's log."""
    if what is not None:
        print(what, file=sys.stderr, flush=True)  # noqa: T201
