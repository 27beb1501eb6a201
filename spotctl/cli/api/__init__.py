"""The commands `plan`, `launch` and `report cost` for scripts and notebooks: the same path, with
values as results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotctl.cli.api.values import CostReport, LaunchedJob, PlannedJob
from spotctl.cli.report import gather_report
from spotctl.cli.runs import launches
from spotctl.cli.session import Session
from spotctl.files.job import reader
from spotctl.home.errors import BadRequest, Interrupted
from spotctl.run.start.launch_plans import stored_plans

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec

__all__ = ["launch", "plan", "report"]

JobFile = str | PathLike[str] | Mapping[str, Any]
"""The path of a job file, or its fields."""


def plan(
    job: JobFile, *, at: str = "", hours: str | float = "", home: str | PathLike[str] | None = None
) -> PlannedJob:
    """Which machines would be rented for a job, and why. Nothing is rented.

    `at` is a point in the price history (`2026-01-20T12:00:00Z`) instead of now. `hours` is the
    length of a job that does not say: `8h`, or a number. `home` is the folder of prices, logs and
    settings, as `--home`.
    """
    session = _session(home)
    spec = _spec(job, session.settings.home)
    planned = stored_plans(
        [spec], session.settings, at, hours if isinstance(hours, str) else f"{hours}h"
    )
    return PlannedJob.of(planned)


def launch(
    job: JobFile,
    *,
    max_cost: str | float = "",
    fresh: bool = False,
    attached: bool = False,
    home: str | PathLike[str] | None = None,
) -> LaunchedJob:
    """Rents machines for a job without asking, runs it to its end, and shuts every machine down.

    A job that fails, or ends early, raises nothing: `outcome` says how it ended. On a terminal,
    progress is shown on stderr. Ctrl-C stops the run; on a cloud it only stops watching, with
    Interrupted, once the runner has moved to a machine. `max_cost` is in dollars; `fresh` and
    `attached` are the flags of the command.
    """
    session = _session(home)
    spec = _spec(job, session.settings.home)
    jobs = launches.prepare(session, [spec], str(max_cost), attached=attached)
    ending = launches.run(session, jobs.order(fresh=fresh), jobs.planned.plans)[0].ending

    if ending is None:
        raise Interrupted(
            f"job {spec.name} continues without this computer ('spotctl resume {spec.name}' "
            "watches it)"
        )
    return LaunchedJob.of(*ending)


def report(
    jobs: str | Sequence[str] = (),
    *,
    since: str = "",
    until: str = "",
    by: str = "job",
    local: bool = False,
    home: str | PathLike[str] | None = None,
) -> CostReport:
    """The cost of the runs of one job, of several, or of all. The options are those of `spotctl
    report cost`.
    """
    names = [jobs] if isinstance(jobs, str) else jobs
    return CostReport.of(gather_report(_session(home), names, since, until, by, local=local))


def _session(home: str | PathLike[str] | None) -> Session:
    return Session(None if home is None else Path(home))


def _spec(job: JobFile, home: Path) -> JobSpec:
    if isinstance(job, Mapping):
        return reader.from_fields(job, home)
    if isinstance(job, str | PathLike):
        return reader.load(Path(job), home=home)
    raise BadRequest(
        f"job is of type {type(job).__name__}; pass the path of a job file, or a dict of its fields"
    )
