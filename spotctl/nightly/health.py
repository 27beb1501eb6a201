"""The problems of nightly jobs, for monitoring, each with its cure, and the jobs as `spotctl
nightly ls` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from bidbrain.billing import usd
from pricing_data.units import HOUR, MINUTE, SECOND, age, counted, format_time, usd_text
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.log.jobs import is_running
from spotctl.log.outcomes import DONE, STOPPED
from spotctl.nightly.hours import LONGEST_RETRY, Hours, clock_text, day_of, local_zone
from spotctl.nightly.install import Timers, renewal, trouble
from spotctl.nightly.night_message import NOT_STARTED
from spotctl.nightly.state_dir import NightStart, StateDir
from spotctl.show.columns import Column, as_json, table

if TYPE_CHECKING:
    from rich.table import Table


T = TypeVar("T")

GRACE = 15 * MINUTE
"""How late a timer may be, or the end of a night: the computer may have been busy, or have just
woken up."""
LONGEST_NIGHT = 24 * HOUR
"""A night without a deadline that runs longer delays the next one."""
_FACTOR = 2
"""The longest night, in times of the usual length."""
_FIX_AND_RUN = "fix it, then run: spotctl nightly run {name}"


class NightHistory:
    """The starts and the last night of a job, and when it was recorded as reported, as far as that
    can be read; `damaged` says which files are damaged.

    `locked`: a process attends to the job.
    """

    def __init__(self, state_dir: StateDir) -> None:
        self.name = state_dir.name
        self.damaged = list[str]()

        def readable(read: Callable[[], T | None]) -> T | None:
            try:
                return read()
            except BadRequest as error:
                self.damaged.append(str(error))
                return None

        self.starts, lines = readable(state_dir.starts.read) or ([], 0)
        if lines:
            cure = "remove the file; the next start makes a new one"
            unread = counted(lines, "line")
            self.damaged.append(f"{state_dir.starts.path}: {unread} cannot be read; {cure}")

        self.last = readable(lambda: state_dir.last)
        result = readable(lambda: state_dir.result)
        self.reported_at = 0 if result is None else result.end
        self.locked = is_running(state_dir.folder, state_dir.name)

    @property
    def running_since(self) -> int | None:
        """The begin of the start that is going on (microseconds UTC); None if none is."""
        alive = [start.began_us for start in self.starts if start.is_alive]
        if alive:
            return alive[0]
        if not self.locked:
            return None
        if self.last is not None and not self.last.reported:
            return self.last.since
        return self.starts[-1].began_us if self.starts else None

    @property
    def is_running(self) -> bool:
        return self.locked or self.running_since is not None

    @property
    def failed_start(self) -> NightStart | None:
        """The latest start if it failed, or did not end, and the record of the last night does not
        say how.
        """
        start = self.starts[-1] if self.starts else None
        if start is None or start.is_alive or (start.ended is None and self.locked):
            return None
        if self.reported_at > (start.began if start.ended is None else start.ended) * SECOND:
            return None
        unsaid = start.status != 0 and not start.reported
        return start if start.why or unsaid else None


def problems(state_dir: StateDir, hours: Hours, now: int, zone: tzinfo) -> list[str]:
    """The problems of the job's records and of its last nights; empty if all is well."""
    nights = NightHistory(state_dir)
    problem_texts = list(nights.damaged)

    since = nights.running_since
    limit = None if since is None else latest_end(nights.starts, hours, since, zone)
    if since is not None and limit is not None and now >= limit:
        problem_texts.append(
            f"the night of {clock_text(since, zone)} still runs, and should have ended by "
            f"{clock_text(limit, zone)};"
            f" see spotctl logs {nights.name}, and stop it with: spotctl stop {nights.name}"
        )

    begin = hours.night(now, zone).begin
    last = nights.last
    is_recorded = last is not None and last.begin >= begin
    begun = is_recorded or any(start.began_us >= begin - SECOND for start in nights.starts)
    written = state_dir.folder / "installed.json"
    if not begun and written.stat().st_mtime_ns // 1000 <= begin and now >= begin + GRACE:
        problem_texts.append(
            f"the night of {clock_text(begin, zone)} did not start: its timer did not run; check "
            "the timer with spotctl"
            f" doctor, or run the night now: spotctl nightly run {nights.name}"
        )

    if failed := _failed(nights, zone):
        problem_texts.append(failed)
    for start in unreported(nights.starts, nights.reported_at):
        # The latest start that failed has been named above.
        if start is not nights.starts[-1] or start.status == 0:
            words = (
                "and no message could be sent; check the webhook and the health check of the job "
                "file"
            )
            problem_texts.append(f"{ending_text(start, zone)}, {words}")

    return problem_texts


def latest_end(starts: Sequence[NightStart], hours: Hours, since: int, zone: tzinfo) -> int:
    """When a night that began at `since` counts as hung.

    That is after its deadline. Without one, a night may retry for hours and then take twice as long
    as usual (the median of the earlier ones that were done), but not more than a day.
    """
    deadline = hours.from_now(since, zone).deadline
    if deadline is not None:
        return deadline + GRACE

    lengths = list[int]()
    for start in starts:
        if start.ended is not None and start.status == 0:
            lengths.append(start.ended - start.began)

    if not lengths:
        return since + LONGEST_NIGHT
    usual = round(median(lengths) * SECOND)
    return since + min(LONGEST_NIGHT, LONGEST_RETRY + _FACTOR * usual)


def _failed(nights: NightHistory, zone: tzinfo) -> str:
    start = nights.failed_start
    last = nights.last
    if start is not None:
        cure = _FIX_AND_RUN if start.ended is not None else "spotctl nightly run {name} resumes it"
        return f"{ending_text(start, zone)}; {cure.format(name=nights.name)}"
    if last is None or nights.is_running:
        return ""
    if not last.reported:
        return (
            f"the night of {last.day.isoformat()} was interrupted; spotctl nightly run "
            f"{nights.name} resumes it"
        )

    if last.outcome not in (DONE, STOPPED):
        return (
            f"the night of {last.day.isoformat()} ended with: {last.outcome}; see "
            f"nightly/{nights.name}/logs, then run:"
            f" spotctl nightly run {nights.name}"
        )

    return ""


def unreported(starts: Sequence[NightStart], reported_at: int) -> list[NightStart]:
    """The starts about which no message was sent, whether they failed or not.

    One that was killed is resumed by the next one, whose message is about both.
    """
    silent = list[NightStart]()
    for start in starts:
        is_known = start.ended is not None or reported_at < start.began_us
        if is_known and not (start.reported or start.is_alive):
            silent.append(start)
    return silent


def ending_text(start: NightStart, zone: tzinfo) -> str:
    begun = f"the start of {clock_text(start.began_us, zone)}"
    if start.ended is None:
        return (
            f"{begun} did not end: its process {start.pid} does not exist any more (killed, or a "
            "power cut)"
        )
    if start.status == 0:
        return f"{begun} ended after {age(start.ended - start.began)}"
    return (
        f"{begun} failed after {age(start.ended - start.began)}: "
        f"{start.why or f'exit status {start.status}'}"
    )


def _hours(job: Mapping[str, Any]) -> str:
    text = job["at"] or ""
    if job["deadline"] is not None:
        text = f"{text}-{job['deadline']}"
    return printable(text)


def _outcome(job: Mapping[str, Any]) -> str:
    last = job["last_night"]
    return "" if last is None else printable(f"{last['night']} {last['outcome']}")


def _cost(job: Mapping[str, Any]) -> str:
    last = job["last_night"] or {}
    cost = last.get("cost_usd")
    if cost is None:
        return ""
    return f"{usd_text(cost)} replayed" if last.get("replayed") else usd_text(cost)


LAST_NIGHT: tuple[Column[Mapping[str, Any]], ...] = (
    Column("night", "day on which it began"),
    Column("outcome", "how it ended; running or interrupted if it has not been reported"),
    Column("cost_usd", "its cost; null if unknown"),
    Column(
        "replayed",
        "whether the night was on the local market: then its cost was replayed, and nothing was "
        "billed; null if unknown",
    ),
)
JOB: tuple[Column[Mapping[str, Any]], ...] = (
    Column("name", "name of the job", heading="name", show=printable),
    Column("file", "job file"),
    Column("at", "time of the start", heading="hours", cell=_hours, rank=2),
    Column("deadline", "time at which the job is stopped; null if there is none"),
    Column(
        "scheduler",
        "what starts it: `systemd` or `cron`",
        heading="by",
        show=printable,
        unknown="",
        rank=3,
    ),
    Column("metrics", "file or port where each night publishes metrics; empty for none"),
    Column(
        "next",
        "next start in this computer's time zone",
        heading="next",
        show=printable,
        unknown="",
        rank=1,
    ),
    Column("next_utc", "next start in UTC"),
    Column("zone", "time zone of this computer"),
    Column(
        "last_night",
        "the last night; null before the first",
        heading="last night",
        cell=_outcome,
        of=LAST_NIGHT,
    ),
    Column("trouble", "what would prevent the next night from running; empty if nothing would"),
    Column("problem", "the first of `problems`; empty if all is well"),
    Column(
        "problems",
        "what would prevent the next night, and what went wrong with the last ones, each with its "
        "cure",
    ),
    Column(
        "renew", "how to renew a timer that an older version installed; empty if it is up to date"
    ),
    Column("environment", "file with secrets and credentials"),
    Column("logs", "folder of the logs"),
)
INSTALLED: tuple[Column[Any], ...] = (
    Column("done", "`installed`, `changed` or `unchanged`"),
    Column("to_do", "what remains to be done by hand", form=list),
    Column(
        "missing",
        "secrets that the environment file does not have yet",
        form=list,
    ),
)
INSTALL = (*JOB, *INSTALLED)
"""The JSON of `spotctl nightly install`."""

REMOVED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("name", "name of the job"),
    Column("done", "`removed`"),
    Column("kept", "folder of the logs, reports and environment file, which are kept"),
)
JOBS: tuple[Column[Any], ...] = (Column("nightly", "the nightly jobs", each=JOB),)
"""The JSON of `spotctl nightly ls`."""

_COST: Column[Mapping[str, Any]] = Column("cost_usd", heading="cost", cell=_cost)


def job_answer(state_dir: StateDir, timers: Timers, now: int) -> dict[str, Any]:
    """A nightly job, its next start, its last night, and what is wrong with it. If its installation
    cannot be read, most of it is null.
    """
    zone, zone_name = local_zone()
    obstacle = f"{state_dir.folder / 'installed.json'} is gone; run spotctl nightly install again"
    nightly, is_readable = None, True
    try:
        nightly = state_dir.installed
    except BadRequest as error:
        # Its lock may be unreadable, too, as after a command of another user.
        obstacle, is_readable = str(error), False

    figures: dict[str, Any] = dict.fromkeys(
        ("file", "at", "deadline", "scheduler", "metrics", "next", "next_utc")
    )
    known = list[str]()
    renew = ""
    if nightly is not None:
        obstacle = trouble(state_dir, nightly, timers)
        known = problems(state_dir, nightly.hours, now, zone)
        if not obstacle:
            renew = renewal(state_dir, nightly, timers)

        begin = nightly.hours.next_begin(now, zone)
        figures |= nightly.to_json()
        figures["next"] = clock_text(begin, zone)
        figures["next_utc"] = format_time(begin)

    # What would prevent the next night comes first.
    wrong = [obstacle, *known] if obstacle else known
    figures |= {
        "name": state_dir.name,
        "zone": zone_name,
        "last_night": _last_night(state_dir, zone) if is_readable else None,
        "trouble": obstacle,
        "problem": wrong[0] if wrong else "",
        "problems": wrong,
        "renew": renew,
        "environment": str(state_dir.environment),
        "logs": str(state_dir.logs),
    }

    return as_json(JOB, figures)


def _last_night(state_dir: StateDir, zone: tzinfo) -> dict[str, Any] | None:
    """The last night, or a later start that failed before its night was recorded."""
    nights = NightHistory(state_dir)
    last = nights.last
    start = nights.failed_start
    unfinished = "running" if nights.is_running else "interrupted"
    if start is not None and (last is None or last.since < start.began_us):
        outcome = unfinished if start.ended is None else NOT_STARTED
        day = day_of(start.began_us, zone)
        return {"night": day.isoformat(), "outcome": outcome, "cost_usd": None, "replayed": None}
    if last is None:
        return None

    return {
        "night": last.day.isoformat(),
        "outcome": last.outcome if last.reported else unfinished,
        "cost_usd": None if last.spent is None else usd(last.spent),
        "replayed": last.replayed,
    }


def jobs_table(jobs: Sequence[Mapping[str, Any]], width: int) -> Table:
    """A row per job of `spotctl nightly ls --json`. A narrow terminal leaves out columns, but never
    breaks a name.
    """
    return table((*JOB, _COST), jobs, width, names=5)
