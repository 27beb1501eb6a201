"""How nights are logged and reported, however much of a job's files can be read.

A scheduled start cannot fail silently: `run_watched` records and reports its begin, its end and
every failure. The cost report of a night is an HTML page, and the same figures as JSON, which the
night's answer has.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, tzinfo
from pathlib import Path
from typing import Any

from pricing_data.units import to_datetime
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, Notify
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.log.outcomes import DONE, STOPPED, AlreadyRunning
from spotctl.nightly import environment
from spotctl.nightly.hours import day_of
from spotctl.nightly.night_message import NightResult, failure_message
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.notify import Message, deliver, post, secret_values
from spotctl.show.columns import Column
from spotctl.show.costs import answers, page
from spotctl.show.costs.accounts import gather, write
from spotctl.show.costs.periods import By, Period

MAX_BYTES = 1 << 20

_FULL = "this log is full; see the event log (spotctl status, spotctl report) for the rest"


class NightLog:
    """Appends to the log of a night, which all starts of the same night share.

    A night is not lost because its log cannot be written.
    """

    def __init__(self, folder: Path, day: date, zone: tzinfo, clock: Callable[[], int]) -> None:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / f"{day.isoformat()}.log"
        self._zone = zone
        self._clock = clock

    def write(self, lines: Iterable[str]) -> None:
        """Appends lines with the current time."""
        now = f"{to_datetime(self._clock()).astimezone(self._zone):%Y-%m-%d %H:%M:%S %Z}"
        with suppress(OSError):
            for line in lines:
                text = f"{now}  {printable(line)}\n".encode()
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "ab") as file:
                    size = file.tell()
                    if size + len(text) <= MAX_BYTES:
                        file.write(text)
                    elif size <= MAX_BYTES:
                        # The last line exceeds the limit, so that no further line is written.
                        file.write(f"{_FULL}\n".encode().ljust(MAX_BYTES - size + 1))


@dataclass(frozen=True, slots=True)
class StartReport:
    """How a start ended; `message` is None if there was nothing to report."""

    result: NightResult
    message: Message | None
    log: Path
    delivered: bool = True


@dataclass
class NightReporter:
    """Logs and posts messages, and tells the health check how nights begin and end.

    `nightly` is None if the installation cannot be read. `delivered` is false after a message that
    could not be sent.
    """

    state_dir: StateDir
    nightly: Installed | None
    log: NightLog
    delivered: bool = True

    def send(self, message: Message, signal: str) -> None:
        """Logs and posts a message, and tells the health check how the night ended."""
        self.log.write(message.text.splitlines())
        deliveries = deliver(message, self._addresses())
        self.log.write(delivery.text for delivery in deliveries)
        heard = self.beat(signal)
        # One message suffices. A health check alone has to hear of it.
        is_told = any(not delivery.failure for delivery in deliveries) if deliveries else heard
        self.delivered = self.delivered and is_told

    def beat(self, signal: str) -> bool:
        """Whether the health check, if there is one, was told."""
        heartbeat = self._addresses().heartbeat
        if heartbeat is None:
            return True
        delivery = post(signal, heartbeat)
        self.log.write([f"{delivery.text} (health check{signal})"])
        return not delivery.failure

    def job(self) -> JobSpec | None:
        """The job file; None if it cannot be read."""
        try:
            return None if self.nightly is None else load(self.nightly.file)
        except BadRequest:
            return None

    def _addresses(self) -> Notify:
        """The addresses of the job file, or those that were last read from it."""
        spec = self.job()
        path = self.state_dir.addresses
        if spec is not None:
            known = spec.notify
            with suppress(OSError):
                environment.keep_addresses(path, known)
        else:
            installed = self.nightly and Notify(self.nightly.webhook, self.nightly.heartbeat)
            known = environment.read_addresses(path) or installed or Notify()

        return environment.resolved_addresses(
            known, {**environment.readable(self.state_dir.environment), **os.environ}
        )


def run_watched(
    state_dir: StateDir, night: Callable[[], StartReport], clock: Callable[[], int], zone: tzinfo
) -> StartReport:
    """Runs a night. A start that the script supervises has its line in the record already."""
    number = supervised = int(os.environ.pop("SPOTCTL_NIGHT_START", "0"))

    def end(*, reported: bool, good: bool, why: str = "") -> None:
        # A supervised start has ended when the script sees its process end.
        status = None if supervised else int(not good)
        state_dir.starts.note(number, clock(), status, reported=reported, why=why)

    try:
        if not supervised:
            number = state_dir.starts.begin(clock()).number
        report = night()
        end(reported=report.delivered, good=report.result.outcome in (DONE, STOPPED))
    except AlreadyRunning:
        end(reported=True, good=False)
        raise
    except Exception as error:
        result = NightResult.of_error(error, began=False)
        nightly = None
        with suppress(BadRequest, OSError):
            nightly = state_dir.installed

        day = day_of(clock(), zone)
        log = NightLog(state_dir.logs, day, zone, clock)
        reporter = NightReporter(state_dir, nightly, log)
        message = failure_message(state_dir.name, day, result, str(log.path))
        if (spec := reporter.job()) is not None:
            message = message.without(secret_values(spec.secrets, os.environ))
        reporter.send(message, "/fail")

        # The error is what the caller has to see, also if it cannot be recorded.
        with suppress(OSError, BadRequest):
            why = message.lines["What happened"]
            end(reported=reporter.delivered, good=False, why=why)
        raise

    return report


NIGHT: tuple[Column[Any], ...] = (
    Column("outcome", "how the night ended"),
    Column("message", "the same in words"),
    Column("log", "log file of the night"),
    Column("event", "`night ended`"),
    Column("name", "name of the job"),
    Column("night", "day on which the night began"),
    Column("runs", "runs of the night"),
    Column("cost_usd", "cost of the night; null if unknown"),
    Column("on_demand_usd", "cost of the same work on on-demand machines; null if it is unknown"),
    Column(
        "replayed",
        "whether the night was on the local market: then these amounts were replayed, and nothing "
        "was billed",
    ),
    Column("evictions", "number of evictions"),
    Column("left_running", "number of machines still held"),
    Column("model", "file of the model; null without one"),
    Column("report", "page with the cost report; null if there is none"),
    Column(
        "cost_report",
        "cost report of the night; null if nothing was rented",
        of=(
            *answers.REPORT,
            Column("in_short", "what the money was spent on, in a sentence"),
            Column("markdown", "the report as a Markdown table"),
        ),
    ),
)
"""The JSON of `spotctl nightly run`: the end of the night, and the facts of its message."""


def write_report(settings: Settings, job: str, since: int, now: int, path: Path) -> dict[str, Any]:
    """Writes the page on the runs of a job from `since` on.

    Returns the JSON of `report cost --json` with a summary: `in_short` in a sentence, `markdown`
    for a chat.
    """
    period = Period(since)
    report = gather(settings, (job,), period, (By.RUN,), now)
    if not report.runs:
        # Earlier nights were on a cloud, this one on the local market.
        report = gather(settings, (job,), period, (By.RUN,), now, local=True)

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, [page.html(report)])
    in_short, markdown = answers.cost_summary(report, path)
    return {**answers.as_json(report), "in_short": in_short, "markdown": markdown}
