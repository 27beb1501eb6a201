"""`spotctl launch`, `resume`, `stop`, `down`, `gc` and `status`: runs of jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pricing_data.units import SECOND, format_time
from spotctl.cli.endings import finish
from spotctl.cli.options import ForegroundOption, JobArgument, MetricsOption, OptionalJobArgument, ShownOutput
from spotctl.cli.session import JsonOption, Session, is_debug
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec
    from spotctl.log.events import RunEnded
    from spotctl.log.state import RunState
    from spotctl.run.orphans import Orphans
    from spotctl.show.runs.latest import Standings


def launch(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="Job files. Several files are planned together.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan without renting anything.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore any checkpoint and start from scratch.")] = False,
    max_cost: Annotated[str, typer.Option(help="Budget limit in US dollars: 5 or 0.50.")] = "",
    attached: Annotated[
        bool, typer.Option("--attached", help="Keep the runner on this computer instead of a reliable machine.")
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="First run the command for ten seconds here, in a copy of its folder."),
    ] = False,
    foreground: ForegroundOption = False,
    output: Annotated[
        ShownOutput,
        typer.Option(help="script: also print the output of the machines on stdout, each line with its machine."),
    ] = ShownOutput.EVENTS,
    json_lines: Annotated[
        bool,
        typer.Option("--json-lines", help="Print a line of JSON for each event on stdout, and at the end the answer."),
    ] = False,
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Rent machines for a job, keep it running through evictions, shut every machine down, and report the cost.

    On a terminal, the run goes on in a process of its own, and this command is its window: you may close the terminal
    or lose the connection. Ctrl-C asks whether to stop the run, and a second one leaves it running; `spotctl resume
    JOB` shows the run again, and continues it if its process was killed. With --foreground, with --json and without a
    terminal, the run ends with this command: Ctrl-C, SIGTERM and SIGHUP stop it and return all machines.

    On a cloud, the runner moves to the job's first reliable machine as soon as it responds, and the run no longer needs
    this computer. The runner stays here with --attached, without a reliable machine, on the local market, and for
    several jobs, which run at the same time; the exit code is then the highest of the jobs.

    Exit codes: 0 done (or you left the window), 1 the job failed, 3 no capacity in time, 4 budget reached, 5
    credentials or permission, 6 the job is already running.

    With --rehearse, a command that fails on this computer within ten seconds, or a trainer that cannot be loaded here,
    is refused with exit code 2 before anything is rented. The setup is not run.

    Without a terminal, each rental, warning, eviction, checkpoint and end is a line on stderr, with its time.

    Example: spotctl launch job.yaml --yes --max-cost 5
    """
    from spotctl.files.job.reader import load

    session: Session = context.obj
    specs = [load(file, to_launch=True) for file in files]
    # Imported here, so that a refused file costs none of it.
    from spotctl.cli import planned_launches, shown_runs
    from spotctl.cli.run_lines import RunLines
    from spotctl.cli.runs_here import launch_here
    from spotctl.show.plans import as_json as plan_json, on_cluster as cluster_tables, tables as plan_tables

    jobs = planned_launches.prepare(session, specs, max_cost, attached=attached)
    plans = jobs.plans
    if output is ShownOutput.SCRIPT and jobs.moves:
        raise BadRequest(
            "--output script: the runner moves to a machine, with the output: use spotctl logs -f, or --attached"
        )
    json_ |= json_lines
    if rehearse:
        _rehearse(session, specs)
    if dry_run and json_:
        answers = [cluster_tables.answer(jobs.on_ray)] if jobs.on_ray else plan_json.answers(jobs.planned)
        session.answer_json(answers[0] if len(answers) == 1 else answers)
        return
    if not json_:
        for job_plan in plans:
            session.out.print(plan_tables.plan_view(job_plan, session.out.width, explain=False))
        if jobs.on_ray:
            session.out.print(cluster_tables.plan_text(jobs.on_ray))
    if dry_run or not (yes or jobs.on_ray or confirm(session)):
        return
    order, lines = jobs.order(fresh=fresh, metrics=metrics), RunLines(output, json_lines)
    if session.in_terminal and not (foreground or json_):
        names = [spec.name for spec in order.specs]
        shown_runs.hand_over(session, order, names, debug=is_debug(context), lines=lines)
    launch_here(session, order, plans, json_=json_, lines=lines)


def _rehearse(session: Session, specs: Sequence[JobSpec]) -> None:
    from spotctl.home.paths import Paths
    from spotctl.run.start import rehearsal

    for spec in specs:
        session.remark(f"rehearsing {spec.name} on this computer, for {rehearsal.SECONDS:g} seconds at most")
        rehearsal.rehearse(spec, Paths(session.settings.home).cache)


def resume(
    context: typer.Context,
    job: JobArgument,
    foreground: ForegroundOption = False,
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Pick up a run after a crash, or show a run that goes on. Nothing is bought twice.

    If the runner lives on a rented machine, this command watches the run. On a terminal, it also shows a run that
    another process of this computer attends to.

    Example: spotctl resume nightly-recsys
    """
    from spotctl.cli import elsewhere, shown_runs
    from spotctl.cli.runs_here import resume_here
    from spotctl.show.metrics.publisher import publishing
    from spotctl.show.runs.figures import RunMarkets

    session: Session = context.obj
    client = elsewhere.client_of(session, job)
    if client is not None:
        session.remark(f"run {client.place.run}: its runner lives on {client.runner()}; this command only watches")
        with publishing(metrics, RunMarkets(session.settings), session.remark) as publish:
            ending = elsewhere.follow(session, client.place, publish)
        finish(session, ending, json_=json_)
    if session.in_terminal and not (foreground or json_):
        shown_runs.resume(session, job, metrics, debug=is_debug(context))
    resume_here(session, job, metrics, json_=json_)


def stop(context: typer.Context, job: JobArgument, json_: JsonOption = False) -> None:
    """Stop a run and return its machines, even if the launcher is gone.

    Example: spotctl stop nightly-recsys

    \f

    Fields:
        -> spotctl.log.ledger.final_figures:final_figures
        -> _emergency
    """
    _end(context.obj, job, json_=json_)


def down(
    context: typer.Context,
    job: OptionalJobArgument = "",
    all_: Annotated[bool, typer.Option("--all", help="Stop all jobs.")] = False,
    json_: JsonOption = False,
) -> None:
    """Stop one job, or all jobs, and return the machines. With --all, --json prints a list.

    Example: spotctl down --all

    \f

    Fields:
        -> spotctl.log.ledger.final_figures:final_figures
        -> _emergency
    """
    session: Session = context.obj
    if bool(job) == all_:
        raise BadRequest("spotctl down: name one job, or give --all")
    if all_:
        _end_all(session, json_=json_)
    else:
        _end(session, job, json_=json_)


def gc(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    clouds: Annotated[
        list[str] | None,
        typer.Option("--cloud", help="Search only this cloud (default: every cloud that jobs were launched on)."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Find and remove whatever this installation rented, on any cloud, and no active run owns.

    Exit code 1 if searching a cloud or removing something failed; the other clouds are still cleaned up.

    Example: spotctl gc --yes

    \f

    Fields:
        removed: whether they were removed (--yes)
        resources: resources that no active run owns
        resources[].kind: machine, disk, address or the like
        resources[].id: its id
        failures: clouds that could not be searched, and what could not be removed
    """
    from spotctl.cli import elsewhere
    from spotctl.run.orphans import orphans

    session: Session = context.obj
    elsewhere.refresh(session)
    orphans_by_cloud = list(orphans(session.settings, clouds or ()))
    orphaned = [resource for part in orphans_by_cloud for resource in part.resources]
    failures = [
        f"{part.cloud}: not fully searched: {part.failure}" for part in orphans_by_cloud if part.failure is not None
    ]
    if not json_:
        session.remark(*(f"{resource.kind} {resource.id} {resource.detail}" for resource in orphaned), *failures)
        session.remark(f"{len(orphaned)} orphaned resources")
    remaining = list[str]()
    if orphaned and (yes or (not json_ and sys.stdin.isatty() and typer.confirm("Remove them?"))):
        remaining = _remove(orphans_by_cloud)
    failures += remaining
    if json_:
        resources = [{"kind": resource.kind, "id": resource.id} for resource in orphaned]
        session.answer_json({"removed": yes, "resources": resources, "failures": failures})
    else:
        session.remark(*remaining)
    if failures:
        raise typer.Exit(1)


def _remove(orphans_by_cloud: Sequence[Orphans]) -> list[str]:
    """Removes what was found in each cloud, even if another one fails; returns the failures."""
    failures = list[str]()
    for part in orphans_by_cloud:
        try:
            part.provider.remove(part.resources)
        except SpotctlError as error:
            failures.append(f"{part.cloud}: not all was removed: {error}")
    return failures


def status(context: typer.Context, job: OptionalJobArgument = "", json_: JsonOption = False) -> None:
    """Show the latest run of each job, or of one job: machines, progress and cost.

    Example: spotctl status --json

    \f

    Fields:
        -> spotctl.show.runs.standing:status_answer
        -> _damaged_status
    """
    from spotctl.cli import elsewhere
    from spotctl.show.runs import standing
    from spotctl.show.runs.latest import standings

    session: Session = context.obj
    read = standings(session.settings, elsewhere.refresh(session, job))
    if read.damage:
        _damaged_status(session, read, json_=json_)
    shown = [known for known in read.runs if job in ("", known.answer["name"])]
    if job and not shown:
        raise BadRequest(f"no job named {job!r} was launched (spotctl status lists the jobs)")
    if json_:
        session.answer_json(standing.status_answer(shown, read.lost))
    elif shown:
        session.out.print(standing.status_table(shown, session.out.width))
        session.remark(*standing.dropped(read.lost), *(known.ways_on for known in shown if known.ways_on))
    else:
        from spotctl.home.paths import Paths
        from spotctl.log.salvage import no_runs

        session.remark(no_runs(Paths(session.settings.home)))


def _damaged_status(session: Session, read: Standings, *, json_: bool) -> NoReturn:
    """Shows what can be read of a damaged log, and the machines that the providers list.

    Fields:
        log_damage: what cannot be read of the event log
        shown: machines that the clouds show
        shown[] -> spotctl.run.emergency:ShownMachine
        failures: clouds that could not be searched
    """
    from spotctl.run.emergency import shown_machines
    from spotctl.show.runs.standing import status_answer, status_table

    machines, failures = shown_machines(session.settings)
    if json_:
        shown = {
            "log_damage": list(read.damage),
            "shown": [asdict(machine) for machine in machines],
            "failures": failures,
        }
        session.answer_json({**status_answer(read.runs), **shown})
        raise typer.Exit(1)
    session.remark(*read.damage)
    if read.runs:
        session.out.print(status_table(read.runs, session.out.width))
    session.out.print(f"machines that the providers show: {len(machines)}")
    for machine in machines:
        session.out.print(f"  {machine.id} of run {machine.run}, {machine.market}", soft_wrap=True, markup=False)
    session.remark(*failures)
    raise typer.Exit(1)


def _emergency(session: Session, why: str, job: str = "", *, json_: bool) -> NoReturn:
    """Returns what the providers show, because the log cannot be used.

    Fields:
        log_damage: why the event log cannot be used
        -> spotctl.run.emergency:EmergencyReturn
        returned[] -> spotctl.run.emergency:ShownMachine
        left[] -> spotctl.run.emergency:ShownMachine
    """
    from spotctl.run.emergency import return_shown

    ended = return_shown(session.settings, job)
    if json_:
        session.answer_json({"log_damage": why, **asdict(ended)})
    else:
        session.remark(
            why, *(f"returned {machine.id} of run {machine.run}, {machine.market}" for machine in ended.returned)
        )
        session.remark(
            *(f"still running: {machine.id} of run {machine.run}" for machine in ended.left), *ended.failures
        )
        session.remark("all machines that the providers showed were returned" if not ended.left else "try again")
    raise typer.Exit(1)


def confirm(session: Session) -> bool:
    if not sys.stdin.isatty():
        raise BadRequest("no terminal to ask for confirmation on: pass --yes, or --dry-run to see the plan only")
    session.out.print("")
    return typer.confirm("Rent these machines?")


def _stop_run(session: Session, job: str) -> tuple[RunState, RunEnded]:
    from spotctl.cli import elsewhere
    from spotctl.cli.live_runs import live_view
    from spotctl.run.start import runs

    if (ending := elsewhere.stop(session, job)) is not None:
        return ending
    # The first Ctrl-C ends nothing: this process may be the one that returns the machines.
    with live_view(session, from_here=True, leaving=Event()) as callbacks:
        return runs.stop(job, session.settings, callbacks)


def _end_all(session: Session, *, json_: bool) -> None:
    from spotctl.log.ledger.final_figures import final_figures
    from spotctl.log.statuses import read_log, unfinished_jobs

    if damage := read_log(session.settings).damage:
        _emergency(session, damage[0], json_=json_)
    endings, failure = list[tuple["RunState", "RunEnded"]](), None
    for job in unfinished_jobs(session.settings):
        try:
            endings.append(_stop_run(session, job))
        except SpotctlError as error:
            # The machines of the other jobs are returned all the same.
            failure = failure or error
    session.answer(
        json_,
        [final_figures(*ending) for ending in endings],
        None,
        *(f"{state.run}: {ended.outcome}; all machines returned" for state, ended in endings),
    )
    if failure is not None:
        raise failure


def _end(session: Session, job: str, *, json_: bool) -> None:
    from spotctl.log.errors import BrokenLog, LogFailed

    asked = wall_us()
    try:
        state, ended = _stop_run(session, job)
    except (BrokenLog, LogFailed) as error:
        _emergency(session, str(error), job, json_=json_)
    if not json_ and ended.wall_us < asked:
        when = format_time(ended.wall_us // SECOND * SECOND)
        session.remark(f"{state.run} ended at {when} ({ended.outcome}); nothing is left to stop")
        return
    if json_ or ended.outcome != "stopped":
        finish(session, (state, ended), json_=json_)
    session.remark(f"{state.run}: {ended.outcome}; all machines returned")
