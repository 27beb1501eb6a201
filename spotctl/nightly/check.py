"""All checks of one nightly job, and the nightly jobs as `spotctl nightly ls` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from bidbrain.billing import usd
from pricing_data.units import format_time, usd_text
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us
from spotctl.nightly.health import history, problems
from spotctl.nightly.hours import clock_text, day_of, local_zone
from spotctl.nightly.install import Timers, renewal, trouble
from spotctl.nightly.night_message import NOT_STARTED
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.show.columns import Column, as_json, table
from spotctl.show.printable import printable

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class NightlyCheck:
    """The installation (None if it cannot be read), and what is wrong; each text ends with the cure.

    `trouble` would prevent the next night, `renew` says how to renew an older timer; both are empty if all is well.
    `problems` begins with `trouble`, and goes on with the last nights.
    """

    nightly: Installed | None
    trouble: str
    problems: list[str]
    renew: str = ""


def check(state_dir: StateDir, timers: Timers, now: int, zone: tzinfo) -> NightlyCheck:
    obstacle = f"{state_dir.folder / 'installed.json'} is gone; run spotctl nightly install again"
    nightly = None
    try:
        nightly = state_dir.installed
    except BadRequest as error:
        obstacle = str(error)
    if nightly is None:
        return NightlyCheck(None, obstacle, [obstacle])
    obstacle = trouble(state_dir, nightly, timers)
    known = [*([obstacle] if obstacle else []), *problems(state_dir, nightly.hours, now, zone)]
    return NightlyCheck(nightly, obstacle, known, "" if obstacle else renewal(state_dir, nightly, timers))


def _hours(job: Mapping[str, Any]) -> str:
    return printable(job["at"] or "" if job["deadline"] is None else f"{job['at']}-{job['deadline']}")


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
        "whether the night was on the local market: then its cost was replayed, and nothing was billed; null if"
        " unknown",
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
        cell=lambda job: printable(job["scheduler"] or ""),
        rank=3,
    ),
    Column("metrics", "file or port where each night publishes metrics; empty for none"),
    Column(
        "next",
        "next start in this computer's time zone",
        heading="next",
        cell=lambda job: printable(job["next"] or ""),
        rank=1,
    ),
    Column("next_utc", "next start in UTC"),
    Column("zone", "time zone of this computer"),
    Column("last_night", "the last night; null before the first", heading="last night", cell=_outcome, of=LAST_NIGHT),
    Column("trouble", "what would prevent the next night from running; empty if nothing would"),
    Column("problem", "the first of `problems`; empty if all is well"),
    Column("problems", "what would prevent the next night, and what went wrong with the last ones, each with its cure"),
    Column("renew", "how to renew a timer that an older version installed; empty if it is up to date"),
    Column("environment", "file with secrets and credentials"),
    Column("logs", "folder of the logs"),
)
INSTALLED: tuple[Column[Any], ...] = (
    Column("done", "`installed`, `changed` or `unchanged`"),
    Column("to_do", "what remains to be done by hand", lambda added: list(added.to_do)),
    Column("missing", "secrets that the environment file does not have yet", lambda added: list(added.missing)),
)
INSTALL = (*JOB, *INSTALLED)
"""What `spotctl nightly install --json` prints."""

REMOVED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("name", "name of the job"),
    Column("done", "`removed`"),
    Column("kept", "folder of the logs, reports and environment file, which are kept"),
)
JOBS: tuple[Column[Any], ...] = (Column("nightly", "the nightly jobs", each=JOB),)
"""What `spotctl nightly ls --json` prints."""

_COST: Column[Mapping[str, Any]] = Column("cost_usd", heading="cost", cell=_cost)


def job_answer(state_dir: StateDir, timers: Timers) -> dict[str, Any]:
    """A nightly job, its next start and its last night. If its installation cannot be read, most of it is null."""
    now, (zone, zone_name) = wall_us(), local_zone()
    checked = check(state_dir, timers, now, zone)
    nightly = checked.nightly
    begin = None if nightly is None else nightly.hours.next_begin(now, zone)
    kept = {} if nightly is None else nightly.to_json()
    figures = {
        **{key: kept.get(key) for key in ("file", "at", "deadline", "scheduler", "metrics")},
        "name": state_dir.name,
        "next": None if begin is None else clock_text(begin, zone),
        "next_utc": None if begin is None else format_time(begin),
        "zone": zone_name,
        "last_night": _last_night(state_dir, zone),
        "trouble": checked.trouble,
        "problem": next(iter(checked.problems), ""),
        "problems": checked.problems,
        "renew": checked.renew,
        "environment": str(state_dir.environment),
        "logs": str(state_dir.logs),
    }
    return as_json(JOB, figures)


def _last_night(state_dir: StateDir, zone: tzinfo) -> dict[str, Any] | None:
    """The last night, or a later start that failed before its night was recorded."""
    nights, _ = history(state_dir)
    last, start = nights.last, nights.failed_start
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
    """A row per job of `spotctl nightly ls --json`. A narrow terminal leaves out columns, but never breaks a name."""
    return table((*JOB, _COST), jobs, width, names=5)
