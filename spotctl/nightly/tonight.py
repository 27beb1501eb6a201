"""One start of a nightly job: at most one run at a time, one run a night, and one message about it.

Before anything is rented, the night is written down as begun; once somebody was told of its end, as told. A start that
is killed anywhere in between is followed by the next, which finds in the event log how far it came.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path
from threading import Event
from typing import Any

from pricing_data.units import SECOND
from spotctl import config
from spotctl.config import Settings
from spotctl.errors import BadRequest, MissingSecret
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, Within
from spotctl.nightly import environment
from spotctl.nightly.hours import Night, clock_text
from spotctl.nightly.night_log import NightLog
from spotctl.nightly.night_message import MISSED, Places, Sums, Verdict, notice
from spotctl.nightly.state_dir import Installed, Kept, StateDir
from spotctl.nightly.steps import CANNOT_GO_ON, TOO_LATE, Found, Step, next_step, runs_since
from spotctl.notify.notice import Notice
from spotctl.notify.runs import secret_values
from spotctl.notify.webhook import post
from spotctl.paths import Paths
from spotctl.run import runs
from spotctl.run.runs import Ending, RunObserver
from spotctl.runlog.errors import AlreadyRunning
from spotctl.runlog.events import RunBegan, RunEnded, StopRequested
from spotctl.runlog.outcomes import DONE, NO_CAPACITY
from spotctl.runlog.state import RunState, fold
from spotctl.runlog.store import EventLog, JobLock
from spotctl.show import run_tables

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Told:
    """How a start ended: what was told, or why there was nothing to tell."""

    verdict: Verdict
    notice: Notice | None
    log: Path


@dataclass
class Starter:
    """One start of a nightly job, by a timer (`scheduled`) or by hand."""

    nightly: Installed
    room: StateDir
    settings: Settings
    zone: tzinfo
    scheduled: bool
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    diary: NightLog = field(init=False)
    stopped: Event = field(init=False, default_factory=Event)

    @property
    def name(self) -> str:
        """The job's."""
        return self.nightly.name

    def run(self, night: Night | None = None) -> Told:
        """Does what this night needs, and tells of it."""
        now, hours = self.clock(), self.nightly.hours
        if night is None:
            night = hours.night(now, self.zone) if self.scheduled else hours.from_now(now, self.zone)
        self.diary = NightLog(self.room.logs, night.day, self.zone, self.clock)
        try:
            with JobLock(self.room.folder, self.name), _interrupted(self.stopped):
                return self._conducted(night)
        except AlreadyRunning as error:
            self.diary.write([f"another start: {error}"])
            raise

    def _conducted(self, night: Night) -> Told:
        found = self._found()
        step = next_step(found, night, self.clock(), scheduled=self.scheduled)
        if step is Step.TELL:
            told = self._end_of(found)
            if not self.scheduled or (found.kept is not None and found.kept.begin >= night.begin):
                return told
            found = self._found()
            step = next_step(found, night, self.clock(), scheduled=self.scheduled)
        if step is Step.SKIP:
            self.diary.write(["another start: this night was run and told of"])
            return Told(Verdict(DONE, "this night was run and told of already"), None, self.diary.path)
        before, kept = found.kept, self._begun(found, night, step)
        try:
            verdict = self._verdict(step, night, kept)
        except AlreadyRunning:
            # Somebody runs it by hand, and will see how it ends; of this start nothing is left.
            self.room.keep(before or replace(kept, told=True, outcome="already running"))
            raise
        return self._tell(verdict, kept)

    # -- what is known ------------------------------------------------------------------------------------------------

    def _runs(self) -> list[RunState]:
        """The runs of the last night and the latest run of the job, in the order in which they began."""
        path, kept = Paths(self.settings.home).log, self.room.last
        if not path.exists():
            return []
        with EventLog(path) as log:
            begun = {
                row.run: row.event.wall_us
                for row in log.beginnings()
                if isinstance(row.event, RunBegan) and row.event.job == self.name
            }
            latest = next(reversed(begun), None)
            wanted = [run for run, at in begun.items() if run == latest or (kept is not None and at >= kept.since)]
            return [fold(log.of_run(run)) for run in wanted]

    def _found(self) -> Found:
        runs = self._runs()
        latest = runs[-1] if runs else None
        meeting = Path(latest.began.folder) if latest is not None and latest.began is not None else None
        can_go_on = latest is None or not latest.orders or (meeting is not None and meeting.is_dir())
        return Found(self.room.last, runs, can_go_on)

    def _begun(self, found: Found, night: Night, step: Step) -> Kept:
        """Writes down that the night has begun; one that was begun and not told of goes on."""
        since = self.clock()
        if found.untold:
            since = found.untold.since
        latest = found.runs[-1] if found.runs else None
        if step in {Step.GO_ON, Step.REPLACE, Step.GIVE_BACK} and latest is not None and latest.began is not None:
            since = min(since, latest.began.wall_us)
        kept = Kept(night.day, night.begin, since)
        self.room.keep(kept)
        return kept

    # -- the run ------------------------------------------------------------------------------------------------------

    def _verdict(self, step: Step, night: Night, kept: Kept) -> Verdict:
        if step is Step.MISSED:
            return Verdict(MISSED, "nothing was begun before the deadline: the computer was off or asleep")
        try:
            ended = self._ended(step, night, kept)
        except AlreadyRunning:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever sleeps now has to be told in the morning
            began = bool(runs_since(self._runs(), kept.since))
            return Verdict.of_error(error, began=began)
        return Verdict(ended.outcome, ended.message)

    def _ended(self, step: Step, night: Night, kept: Kept) -> RunEnded:
        """The end of the night's last run."""
        if step is Step.GIVE_BACK:
            self.diary.write(["the deadline is over: what the interrupted run holds is given back"])
            return self._go_on(night, TOO_LATE)
        if step is Step.GO_ON:
            self.diary.write(["an earlier start was killed: its run goes on"])
            ended = self._go_on(night)
        else:
            if step is Step.REPLACE:
                self.diary.write([f"{CANNOT_GO_ON.message}: what it holds is given back, and another begins"])
                self._go_on(night, CANNOT_GO_ON)
            ended = self._launch(night)
        while ended.outcome == NO_CAPACITY and self._waited(night, kept):
            ended = self._launch(night)
        return ended

    def _launch(self, night: Night) -> RunEnded:
        spec = self._job()
        runs.check_launchable(spec)
        self.diary.write([f"launched from {self.nightly.file}"])
        spec = for_tonight(spec, night, self.clock(), self.zone)
        return self._noted(runs.launch(spec, self.settings, self._watching(night)))

    def _go_on(self, night: Night, stop: StopRequested | None = None) -> RunEnded:
        if stop is None:
            self._provide(self._secrets_of_run())
        watching = self._watching(night, self._runs()[-1])
        return self._noted(runs.resume(self.name, self.settings, watching, stop))

    def _secrets_of_run(self) -> tuple[str, ...]:
        latest = self._runs()[-1]
        return tuple(latest.began.spec.get("secrets", ())) if latest.began is not None else ()

    def _noted(self, ending: Ending) -> RunEnded:
        state, ended = ending
        self.diary.write([f"{state.run}: {ended.outcome}"])
        return ended

    def _waited(self, night: Night, kept: Kept) -> bool:
        """Waits before another attempt; False if there is no time for one, or somebody asks to end."""
        now, attempts = self.clock(), len(runs_since(self._runs(), kept.since))
        pause = night.pause(attempts, now)
        if pause is None:
            return False
        self.diary.write([f"no machines were to be had; next attempt at {clock_text(now + pause, self.zone)}"])
        return not self.stopped.wait(pause / SECOND)

    def _job(self) -> JobSpec:
        spec = load(self.nightly.file)
        if spec.name != self.name:
            raise BadRequest(
                f"{self.nightly.file}: is the job {spec.name!r} now, installed was {self.name!r}: spotctl nightly rm"
                f" {self.name}, then spotctl nightly install {self.nightly.file}"
            )
        self._provide(spec.secrets)
        return spec

    def _provide(self, secrets: tuple[str, ...]) -> None:
        """Sees to it that the secrets are there."""
        absent = environment.missing(secrets, os.environ)
        if absent:
            raise MissingSecret(
                f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not in the environment of the night; write"
                f" {absent[0]}=... into {self.room.environment}"
            )

    def _watching(self, night: Night, known: RunState | None = None) -> RunObserver:
        """Notes what becomes of machines, and asks the run to end when its time is up or a signal came."""
        seen = [known or RunState()]

        def turned(state: RunState) -> None:
            if state.stopping is None and self.stopped.is_set():
                runs.request_stop(self.name, self.settings)
            elif state.stopping is None and night.is_over(self.clock()):
                runs.request_stop(self.name, self.settings, TOO_LATE)
            self.diary.write(run_tables.happened(seen.pop(), state))
            seen.append(state)

        return RunObserver(on_turn=turned)

    # -- the morning --------------------------------------------------------------------------------------------------

    def _end_of(self, found: Found) -> Told:
        """Tells of a night whose start was killed after its run had ended."""
        ended = found.of_night[-1].ended
        assert found.kept is not None
        assert ended is not None
        return self._tell(Verdict(ended.outcome, ended.message), found.kept)

    def _tell(self, verdict: Verdict, kept: Kept) -> Told:
        """Notes, posts, and only then writes down that it was told: rather twice than never."""
        runs = runs_since(self._runs(), kept.since)
        report, figures = self._report(kept) if runs else (None, None)
        places = Places(self.name, str(self.nightly.file), str(self.room.environment), str(self.diary.path), report)
        spec = self._readable_job()
        hidden = [] if spec is None else secret_values(spec, os.environ)
        said = notice(verdict, runs, kept.day, places, figures).without(hidden)
        self.diary.write(said.text.splitlines())
        webhook = self.nightly.webhook if spec is None else spec.webhook
        if webhook is not None:
            self.diary.write([post(said, webhook).words])
        self.room.keep(replace(kept, told=True, outcome=verdict.outcome, spent=Sums.of(runs).spent))
        return Told(verdict, said, self.diary.path)

    def _report(self, kept: Kept) -> tuple[str | None, Mapping[str, Any] | None]:
        """Where the night's cost report lies, and what it says."""
        from spotctl.nightly.costs import write_report

        path = self.room.reports / f"{kept.day.isoformat()}.html"
        try:
            return str(path), write_report(self.settings, self.name, kept.since, self.clock(), path)
        except Exception as error:  # noqa: BLE001 - a page that cannot be drawn must not keep the news from being told
            self.diary.write([f"no cost report: {type(error).__name__}: {error}"])
            return None, None

    def _readable_job(self) -> JobSpec | None:
        try:
            return load(self.nightly.file)
        except BadRequest:
            return None


def for_tonight(spec: JobSpec, night: Night, now: int, zone: tzinfo) -> JobSpec:
    """The job with the night's deadline where it has none of its own, or a later one.

    On a local market the job's own deadline counts in market time, and is left alone.
    """
    if night.last_call is None:
        return spec
    own, left = spec.deadline, max(night.last_call - now, SECOND)
    if spec.is_local:
        return spec if own is not None else replace(spec, deadline=Within(round(left * spec.local.speed)))
    if own is not None and own.moment(now, zone) <= night.last_call:
        return spec
    return replace(spec, deadline=Within(left))


def equip(nightly: Installed, room: StateDir, given: Mapping[str, str]) -> Settings:
    """Makes this process's environment that of the night, and reads the settings in it."""
    os.environ.update({"PATH": nightly.path, **given, "SPOTCTL_HOME": str(room.home)})
    return config.load(os.environ, room.home)


@contextmanager
def _interrupted(stopped: Event) -> Iterator[None]:
    """A first signal asks the night to end, a second one ends this process."""

    def asked(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, asked) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
