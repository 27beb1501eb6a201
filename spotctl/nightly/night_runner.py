"""One start of a nightly job: at most one run at a time, one run per night, and one message about
it.

The night is recorded before anything is rented, and again once its message was sent. If a start is
killed in between, the next one finds in the event log how far it got, and continues.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bidbrain.billing import usd
from pricing_data.units import SECOND
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, Within
from spotctl.home.callbacks import unheard
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, MissingSecret
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RunEnded, StopRequested
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.outcomes import DONE, NO_CAPACITY, AlreadyRunning
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.nightly import environment
from spotctl.nightly.health import ending_text, unreported
from spotctl.nightly.hours import (
    CANNOT_RESUME,
    TOO_LATE,
    Night,
    NightStep,
    clock_text,
    runs_since,
)
from spotctl.nightly.night_message import (
    MISSED,
    SKIPPED,
    NightResult,
    NightTotals,
    night_message,
)
from spotctl.nightly.reporting import NightLog, NightReporter, StartReport
from spotctl.nightly.state_dir import Installed, NightRecord, StateDir
from spotctl.run.following import RunObserver, stop_signals
from spotctl.run.notify import hidden, notify_of_alarm, secret_values
from spotctl.run.start import runs
from spotctl.run.start.admission import check_launchable, check_machine_packages
from spotctl.show.metrics import NightFigures
from spotctl.show.runs import lines as run_lines


@dataclass
class NightRunner:
    """One start of a nightly job, by a timer (`scheduled`) or by hand."""

    nightly: Installed
    state_dir: StateDir
    settings: Settings
    zone: tzinfo
    scheduled: bool
    clock: Callable[[], int] = wall_us
    publish: Callable[[RunState], None] = unheard
    """Gets each state of a run, for metrics."""
    publish_night: Callable[[NightFigures], None] = unheard
    """Gets whether a night is going on, and how the last one ended, for metrics."""
    reporter: NightReporter = field(init=False)
    log: NightLog = field(init=False)
    stopped: threading.Event = field(init=False, default_factory=threading.Event)

    def run(self, night: Night | None = None) -> StartReport:
        """Does what this night needs, and reports it."""
        now = self.clock()
        hours = self.nightly.hours
        if night is None:
            night = (
                hours.night(now, self.zone) if self.scheduled else hours.from_now(now, self.zone)
            )

        self.log = NightLog(self.state_dir.logs, night.day, self.zone, self.clock)
        self.reporter = NightReporter(self.state_dir, self.nightly, self.log)
        try:
            with JobLock(self.state_dir.folder, self.nightly.name), stop_signals(self.stopped):
                return self._run(night)
        except AlreadyRunning as error:
            self.log.write([f"another start is refused: {error}"])
            # One message for a night that cannot start, because a night before it or a run by hand
            # is still going on.
            record = self.state_dir.last
            is_own = record is not None and record.begin >= night.begin and not record.reported
            if self.scheduled and not is_own and self.state_dir.skipped != night.begin:
                result = NightResult(SKIPPED, str(error))
                places = (self.state_dir.environment, self.log.path)
                message = night_message(result, (), night.day, self.nightly, *places)
                self.reporter.send(message, "/fail")
                self.state_dir.record_skipped(night.begin)
            raise

    def _run(self, night: Night) -> StartReport:
        step, before, earlier = self._next_step(night)
        if step is NightStep.REPORT:
            # An earlier start was killed after its run had ended.
            assert before is not None
            ended = runs_since(earlier, before.since)[-1].ended
            assert ended is not None
            report = self._report(NightResult(ended.outcome, ended.message), before)
            if not self.scheduled or before.begin >= night.begin:
                return report
            step, before, earlier = self._next_step(night)

        if step is NightStep.SKIP:
            skipped = "this night's run was already reported"
            self.log.write([f"nothing to do: {skipped}"])
            return StartReport(NightResult(DONE, skipped), None, self.log.path)

        # The night has begun. An unreported night continues.
        since = self.clock()
        if before is not None and not before.reported:
            since = before.since
        continues = step in {NightStep.RESUME, NightStep.REPLACE, NightStep.CLOSE}
        if continues and earlier and (began := earlier[-1].began) is not None:
            since = min(since, began.wall_us)
        record = NightRecord(night.day, night.begin, since)
        self.state_dir.record(record)

        self._publish_night(running=True)
        self.reporter.beat("/start")
        try:
            result = self._result(step, night, record)
        except AlreadyRunning:
            # The job was launched by hand, and its user sees how it ends: undo the record of this
            # start.
            self.state_dir.record(
                before or msgspec.structs.replace(record, reported=True, outcome="already running")
            )
            self._publish_night(running=False)
            raise

        return self._report(result, record)

    # -- state -------------------------------------------------------------------------------------

    def _runs(self) -> list[RunState]:
        """The runs of the last night and the latest run of the job, oldest first."""
        path = Paths(self.settings.home).log
        record = self.state_dir.last
        if not path.exists():
            return []
        with EventLog(path) as log:
            begun = {
                run: began.wall_us
                for run, began in log.runs().items()
                if began.job == self.nightly.name
            }
            latest = next(reversed(begun), None)
            since = None if record is None else record.since
            relevant = [
                run
                for run, at in begun.items()
                if run == latest or (since is not None and at >= since)
            ]
            return [fold(log.of_run(run)) for run in relevant]

    def _next_step(self, night: Night) -> tuple[NightStep, NightRecord | None, list[RunState]]:
        """The step to take now, and what it follows from: the last recorded night, and the job's
        runs.
        """
        runs = self._runs()
        latest = runs[-1] if runs else None
        folder = None
        if latest is not None and latest.began is not None:
            folder = Path(latest.began.folder)
        can_resume = latest is None or not latest.orders or (folder is not None and folder.is_dir())

        last = self.state_dir.last
        now = self.clock()
        step = next_step(last, runs, night, now, scheduled=self.scheduled, can_resume=can_resume)
        return step, last, runs

    # -- the run -----------------------------------------------------------------------------------

    def _result(self, step: NightStep, night: Night, record: NightRecord) -> NightResult:
        if step is NightStep.MISSED:
            return NightResult(
                MISSED, "nothing was started before the deadline: the computer was off or asleep"
            )

        try:
            ended = self._last_end(step, night, record)
        except AlreadyRunning:
            raise
        # Every failure must be reported: no one is watching.
        except Exception as error:  # noqa: BLE001
            began = bool(runs_since(self._runs(), record.since))
            return NightResult.of_error(error, began=began)

        return NightResult(ended.outcome, ended.message)

    def _last_end(self, step: NightStep, night: Night, record: NightRecord) -> RunEnded:
        """Runs the job as the step requires, and returns the end of the night's last run."""
        if step is NightStep.CLOSE:
            self.log.write(
                ["the deadline has passed: returning the machines of the interrupted run"]
            )
            return self._resume(night, TOO_LATE)

        if step is NightStep.RESUME:
            self.log.write(["an earlier start was killed: resuming its run"])
            ended = self._resume(night)
        else:
            if step is NightStep.REPLACE:
                self.log.write(
                    [f"{CANNOT_RESUME.message}; returning its machines and launching again"]
                )
                self._resume(night, CANNOT_RESUME)
            ended = self._launch(night)

        while ended.outcome == NO_CAPACITY:
            # Another attempt, unless there is no time for one, or a signal asked to end.
            now = self.clock()
            attempts = len(runs_since(self._runs(), record.since))
            pause = night.pause(attempts, now)
            if pause is None:
                break
            self.log.write(
                [f"no machines available; next attempt at {clock_text(now + pause, self.zone)}"]
            )
            if self.stopped.wait(pause / SECOND):
                break
            ended = self._launch(night)

        return ended

    def _launch(self, night: Night) -> RunEnded:
        spec = load(self.nightly.file, home=self.state_dir.home)
        if spec.name != self.nightly.name:
            raise BadRequest(
                f"{self.nightly.file}: the job is now named {spec.name!r}, but "
                f"{self.nightly.name!r} is installed: run spotctl nightly rm {self.nightly.name}, "
                f"then spotctl nightly install {self.nightly.file}"
            )

        self._check_secrets(spec.secrets)
        check_launchable(spec)
        check_machine_packages(spec, self.settings)
        self.log.write([f"launching {self.nightly.file}"])
        spec = with_night_deadline(spec, night, self.clock(), self.zone)

        state, ended = runs.launch(spec, self.settings, self._observer(night))
        self.log.write([f"{state.run}: {ended.outcome}"])
        return ended

    def _resume(self, night: Night, stop: StopRequested | None = None) -> RunEnded:
        latest = self._runs()[-1]
        if stop is None and latest.began is not None:
            self._check_secrets(tuple(latest.began.spec.get("secrets", ())))
        observer = self._observer(night, latest)
        state, ended = runs.resume(self.nightly.name, self.settings, observer, stop)
        self.log.write([f"{state.run}: {ended.outcome}"])
        return ended

    def _check_secrets(self, secrets: tuple[str, ...]) -> None:
        missing = environment.missing(secrets, os.environ)
        if missing:
            names = ", ".join(missing)
            verb = "is" if len(missing) == 1 else "are"
            cure = f"add {missing[0]}=... to {self.state_dir.environment}"
            raise MissingSecret(f"{names} {verb} not in the environment of the night; {cure}")

    def _observer(self, night: Night, known: RunState | None = None) -> RunObserver:
        """An observer that logs changes, and asks the run to end at its deadline or after a
        signal."""
        last = [known or RunState()]

        def turned(state: RunState) -> None:
            self.publish(state)
            if state.stopping is None and self.stopped.is_set():
                runs.request_stop(self.nightly.name, self.settings)
            elif state.stopping is None and night.is_over(self.clock()):
                runs.request_stop(self.nightly.name, self.settings, TOO_LATE)

            named = () if state.began is None else state.began.spec.get("secrets", ())
            secrets = secret_values(named, os.environ)
            # A cloud may quote what it was sent.
            self.log.write(
                [hidden(line, secrets) for line in run_lines.happened(last.pop(), state)]
            )
            last.append(state)

        alarmed = partial(notify_of_alarm, done=lambda delivery: self.log.write([delivery.text]))
        return RunObserver(on_turn=turned, on_alarm=alarmed)

    # -- report ------------------------------------------------------------------------------------

    def _report(self, result: NightResult, record: NightRecord) -> StartReport:
        """Logs and posts the message, then records that: a message sent twice is better than
        none."""
        runs = runs_since(self._runs(), record.since)
        report = self._cost_report(record) if runs else None
        places = (self.state_dir.environment, self.log.path)
        message = night_message(result, runs, record.day, self.nightly, *places, report)

        spec = self.reporter.job()
        message = message.without([] if spec is None else secret_values(spec.secrets, os.environ))
        starts, _ = self.state_dir.starts.read()

        # The last line is that of this start, unless it is made by hand.
        last = self.state_dir.result
        earlier = unreported(
            starts[:-1] if self.scheduled else starts, 0 if last is None else last.end
        )
        if earlier:
            endings = "; ".join(ending_text(start, self.zone) for start in earlier)
            message = replace(message, lines={**message.lines, "Not reported before": endings})

        self.reporter.send(message, "" if result.outcome == DONE else "/fail")

        totals = NightTotals(runs)
        # Metrics of nights are added up over jobs, and replayed money is not real.
        cost = 0 if totals.replayed else totals.spent
        # A start that is killed between the two reports again; the other way round, monitoring
        # would miss a report.
        self.state_dir.record_result(self.clock(), done=result.outcome == DONE, spent=cost)
        self.state_dir.record(
            msgspec.structs.replace(
                record,
                reported=True,
                outcome=result.outcome,
                spent=totals.spent,
                replayed=totals.replayed,
            )
        )

        self.state_dir.delete_old(record.day, self.zone)
        if self.reporter.delivered:
            for start in earlier:
                self.state_dir.starts.write(replace(start, reported=True))

        self._publish_night(running=False)
        return StartReport(result, message, self.log.path, self.reporter.delivered)

    def _publish_night(self, *, running: bool) -> None:
        last = self.state_dir.result
        figures = NightFigures(self.nightly.name, running)
        if last is not None:
            success = None if last.success is None else last.success / SECOND
            cost = None if last.spent is None else usd(last.spent)
            figures = NightFigures(
                self.nightly.name, running, last.done, cost, last.end / SECOND, success
            )
        self.publish_night(figures)

    def _cost_report(self, record: NightRecord) -> tuple[str, Mapping[str, Any]] | None:
        """The path and the figures of the night's cost report; None if it cannot be made."""
        from spotctl.nightly.reporting import write_report

        path = self.state_dir.reports / f"{record.day.isoformat()}.html"
        try:
            return str(path), write_report(
                self.settings, self.nightly.name, record.since, self.clock(), path
            )
        except Exception as error:  # noqa: BLE001 - a failing report must not prevent the message
            self.log.write([f"no cost report: {type(error).__name__}: {error}"])
            return None


def with_night_deadline(spec: JobSpec, night: Night, now: int, zone: tzinfo) -> JobSpec:
    """The job with the deadline of the night, unless its own is earlier.

    On the local market the job's own deadline is in market time, and is kept.
    """
    if night.stop_at is None:
        return spec

    own = spec.deadline
    remaining = max(night.stop_at - now, SECOND)
    if spec.is_local:
        if own is not None:
            return spec
        return replace(spec, deadline=Within(round(remaining * spec.local.speed)))
    if own is not None and own.moment(now, zone) <= night.stop_at:
        return spec

    return replace(spec, deadline=Within(remaining))


def next_step(
    last: NightRecord | None,
    runs: Sequence[RunState],
    night: Night,
    now: int,
    *,
    scheduled: bool,
    can_resume: bool = True,
) -> NightStep:
    """The action to take now, given the `last` recorded night, the job's runs, and whether the
    latest of them can be resumed. Starts by a timer (`scheduled`) run each night once, and never
    after its deadline.
    """
    latest = runs[-1] if runs else None
    if latest is not None and latest.ended is None:
        if night.is_over(now):
            return NightStep.CLOSE
        return NightStep.RESUME if can_resume else NightStep.REPLACE

    is_reported = last is not None and last.reported
    of_night = [] if last is None else runs_since(runs, last.since)
    if not is_reported and of_night and (ended := of_night[-1].ended):
        # After these ends, another run follows in the same night.
        is_retried = ended.outcome == NO_CAPACITY or ended.message == CANNOT_RESUME.message
        if not is_retried:
            return NightStep.REPORT

    if scheduled and last is not None and is_reported and last.begin >= night.begin:
        return NightStep.SKIP
    return NightStep.MISSED if night.is_over(now) else NightStep.LAUNCH
