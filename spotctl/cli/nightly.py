"""`spotctl nightly`: jobs that a timer runs every night."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricing_data.units import counted
from spotctl.cli.options import MetricsOption
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.nightly.reporting import StartReport
    from spotctl.nightly.state_dir import StateDir

app = typer.Typer(
    help="Run jobs every night from a timer, and report the results.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(help="Name of the nightly job.", show_default=False)]


@app.command()
def install(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    at: Annotated[
        str,
        typer.Option(help="Start time, in this computer's time zone: 02:00.", show_default=False),
    ],
    deadline: Annotated[
        str,
        typer.Option(
            help="Time by which the job must end: 06:00. An unfinished job is stopped then."
        ),
    ] = "",
    scheduler: Annotated[str, typer.Option(help="Scheduler: systemd, cron or auto.")] = "auto",
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Run a job every night. To change the schedule, install the job again.

    The job file is read at each start, not copied. Secrets and cloud credentials come from a file
    that only you can read; install prints its path.

    Example: spotctl nightly install job.yaml --at 02:00 --deadline 06:00
    """
    from spotctl.nightly import install as installing
    from spotctl.nightly.health import INSTALLED, job_answer
    from spotctl.nightly.hours import Hours, clock_text, local_zone, time_of_day
    from spotctl.nightly.state_dir import StateDir
    from spotctl.show.columns import as_json
    from spotctl.show.metrics import absolute

    session: Session = context.obj
    hours = Hours(
        time_of_day(at, "--at"), time_of_day(deadline, "--deadline") if deadline else None
    )

    if hours.at == hours.deadline:
        raise BadRequest(
            f"--deadline {deadline} is the time of --at: a night of 24 hours needs no --deadline"
        )

    timers = installing.Timers.of_this_user()
    home = session.settings.home
    place = absolute(metrics, home)
    try:
        chosen = installing.Scheduler(scheduler)
    except ValueError:
        known = ", ".join(each.value for each in installing.Scheduler)
        raise BadRequest(f"--scheduler: {scheduler!r} is not one of {known}") from None

    added = installing.install(file, hours, chosen, home, timers, wall_us(), place)
    state_dir = StateDir(home.resolve(), added.nightly.name)
    if json_:
        job = job_answer(state_dir, timers, wall_us())
        session.answer_json({**job, **as_json(INSTALLED, added)})
        return

    zone, zone_name = local_zone()
    begin = clock_text(added.nightly.hours.next_begin(wall_us(), zone), zone)
    next_start = f"next start {begin} ({zone_name}), by {added.nightly.scheduler}"
    session.out.print(f"{added.nightly.name}: {added.done}; {next_start}")
    for line in added.to_do:
        session.say(f"  to do: {line}")


@app.command("ls")
def list_(
    context: typer.Context,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit with 1 if a night failed, did not start, or will not start; say why.",
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """List nightly jobs: next start, last result, and any problem that would stop the next run.

    Example: spotctl nightly ls --check
    """
    session: Session = context.obj
    jobs = known_jobs(session)
    problems = [f"{job['name']}: {problem}" for job in jobs for problem in job["problems"]]
    if json_:
        session.answer_json({"nightly": jobs})

    if check:
        # Monitoring shows what a check prints on stdout.
        if problems and not json_:
            session.say(*problems)
        elif not json_:
            well = (
                f"{counted(len(jobs), 'nightly job')}: no night failed or was missed, and the next "
                "night can start"
            )
            session.say(well if jobs else "no nightly jobs")
        raise typer.Exit(1 if problems else 0)
    if json_:
        return
    if not jobs:
        session.remark("no nightly jobs (add one with: spotctl nightly install FILE --at 02:00)")
        return

    from spotctl.nightly.health import jobs_table

    session.out.print(jobs_table(jobs, session.out.width))
    renewals = [f"{job['name']}: {job['renew']}" for job in jobs if job["renew"]]
    session.say(*problems, *renewals, indent=2)


@app.command()
def run(
    context: typer.Context,
    name: NameArgument,
    scheduled: Annotated[
        bool,
        typer.Option(
            "--scheduled",
            help="Run the way the timer does: once per night, and not after the deadline.",
        ),
    ] = False,
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Run a nightly job now: resume an interrupted run or start a new one, then report the result.

    --metrics overrides that of spotctl nightly install.

    Exit codes: 0 done, 1 the job failed, 2 not started, 3 no capacity or not done in time, 4 budget
    reached, 5 credentials or permission, 6 already running.

    Example: spotctl nightly run nightly-recsys
    """
    from spotctl.cli.boundary import NOT_IN_TIME
    from spotctl.cli.runs.live_runs import EXIT_CODES
    from spotctl.nightly.hours import local_zone
    from spotctl.nightly.night_message import MISSED
    from spotctl.nightly.reporting import run_watched
    from spotctl.nightly.state_dir import StateDir

    session: Session = context.obj
    state_dir = StateDir(session.settings.home.resolve(), name)
    night = partial(_night, session, state_dir, metrics, scheduled=scheduled)
    watched = scheduled and state_dir.folder.exists()
    report = run_watched(state_dir, night, wall_us, local_zone()[0]) if watched else night()

    if json_:
        facts = {} if report.message is None else report.message.facts
        result = {
            "outcome": report.result.outcome,
            "message": report.result.message,
            "log": str(report.log),
        }
        session.answer_json({**result, **facts})
    # Cron mails any output, and a night without problems needs no mail.
    elif not scheduled or report.result.outcome != "done":
        text = report.result.message if report.message is None else report.message.text
        session.say(*text.splitlines(), indent=2)

    if report.result.error is not None:
        raise report.result.error
    raise typer.Exit({**EXIT_CODES, MISSED: NOT_IN_TIME}[report.result.outcome])


def _night(session: Session, state_dir: StateDir, metrics: str, *, scheduled: bool) -> StartReport:
    from spotctl.home import config
    from spotctl.nightly import environment
    from spotctl.nightly.hours import local_zone
    from spotctl.nightly.night_runner import NightRunner
    from spotctl.nightly.state_dir import installed
    from spotctl.show.metrics import publishing
    from spotctl.show.runs.reading import RunViews

    nightly = installed(state_dir)
    # This process gets the environment of the night, and the settings are read from it.
    variables = environment.read_file(state_dir.environment)
    os.environ.update({"PATH": nightly.path, **variables, "SPOTCTL_HOME": str(state_dir.home)})
    settings = config.load(os.environ, state_dir.home)
    runner = NightRunner(nightly, state_dir, settings, local_zone()[0], scheduled)
    place = metrics or nightly.metrics
    markets = RunViews(settings)

    # The night runs without metrics rather than not at all.
    with publishing(place, markets, session.remark, needed=bool(metrics)) as publish:
        runner.publish = publish
        runner.publish_night = publish.night
        return runner.run()


@app.command()
def rm(context: typer.Context, name: NameArgument, json_: JsonOption = False) -> None:
    """Remove a nightly job. Its logs, reports and environment file are kept.

    Example: spotctl nightly rm nightly-recsys
    """
    from spotctl.nightly.health import REMOVED
    from spotctl.nightly.install import Timers
    from spotctl.nightly.state_dir import StateDir, installed
    from spotctl.show.columns import as_json

    session: Session = context.obj
    state_dir = StateDir(session.settings.home.resolve(), name)
    nightly = installed(state_dir)
    Timers.of_this_user().remove(nightly.name, nightly.scheduler, state_dir.home)
    state_dir.uninstall()

    if json_:
        session.answer_json(
            as_json(REMOVED, {"name": name, "done": "removed", "kept": str(state_dir.folder)})
        )
    else:
        session.out.print(
            f"{name}: removed; its logs and environment file are kept in {state_dir.folder}",
            soft_wrap=True,
        )


def known_jobs(session: Session) -> list[dict[str, Any]]:
    """The nightly jobs of the home, as `nightly ls --json` lists them."""
    from spotctl.nightly.state_dir import state_dirs

    known = state_dirs(session.settings.home.resolve())
    if not known:
        return []

    # It takes seconds to import, and most homes have no nights.
    from spotctl.nightly.health import job_answer
    from spotctl.nightly.install import Timers

    timers = Timers.of_this_user()
    now = wall_us()
    return [job_answer(state_dir, timers, now) for state_dir in known]
