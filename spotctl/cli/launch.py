"""`spotctl launch` and `resume`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.options import ForegroundOption, JobOrPlaceArgument, MetricsOption, ShownOutput
from spotctl.cli.session import JsonOption, Session, is_debug
from spotctl.home.errors import BadRequest


def launch(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="Job files. Several files are planned together.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan, as spotctl plan.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore any checkpoint and start from scratch.")
    ] = False,
    max_cost: Annotated[str, typer.Option(help="Budget limit in US dollars: 5 or 0.50.")] = "",
    name: Annotated[str, typer.Option(help="Name of the job, instead of the file's.")] = "",
    budget: Annotated[
        str, typer.Option(metavar="USD", help="Budget of each job, instead of the file's: 5.")
    ] = "",
    env: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Set a variable. Repeatable.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K=V,W",
            help="A job for each value: variable K of a command, argument K of a training. "
            "Repeatable: each combination.",
        ),
    ] = None,
    attached: Annotated[
        bool,
        typer.Option(
            "--attached", help="Keep the runner on this computer instead of a reliable machine."
        ),
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="First run the command here for a minute at most, and see it resume."
        ),
    ] = False,
    foreground: ForegroundOption = False,
    output: Annotated[
        ShownOutput,
        typer.Option(
            help="script: also print the output of the machines on stdout, each line with its "
            "machine."
        ),
    ] = ShownOutput.EVENTS,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Print each event as a line of JSON on stdout, then the result."
        ),
    ] = False,
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Rent machines for a job, keep it running through evictions, shut every machine down, and
    report the cost.

    On a terminal, the run goes on in a process of its own, and this command is its window: you may
    close the terminal or lose the connection. Ctrl-C asks whether to stop the run, and a second one
    leaves it running; `spotctl resume JOB` shows the run again, and continues it if its process was
    killed. With --foreground, with --json and without a terminal, the run ends with this command:
    Ctrl-C, SIGTERM and SIGHUP stop it and return all machines.

    On a cloud, the runner moves to the job's first reliable machine as soon as it responds, and the
    run no longer needs this computer. The runner stays here with --attached, without a reliable
    machine, on the local market, and for several jobs, which run at the same time; the exit code is
    then the highest of the jobs.

    Exit codes: 0 done (or you left the window), 1 the job failed, 3 no capacity in time, 4 budget
    reached, 5 credentials or permission, 6 the job is already running.

    With --rehearse, a command that fails on this computer, or a trainer that cannot be loaded here,
    is refused with exit code 2 before anything is rented. A command with a checkpoint is killed and
    started again, as init does: launch says whether it resumed, and the plan counts the size and
    the time of its checkpoints. The setup is not run. On a terminal, the first launch of a job on a
    cloud proposes that.

    With --sweep lr=1e-3,1e-4, the jobs JOB-lr-1e-3 and JOB-lr-1e-4 run as those of several files
    do, each with its own budget, checkpoint and outputs; spotctl stop 'JOB-lr-*' stops them.

    Without a terminal, each rental, warning, eviction, checkpoint and end is a line on stderr, with
    its time.

    Example: spotctl launch job.yaml --yes --max-cost 5

    Example: spotctl launch job.yaml --sweep lr=1e-3,1e-4 --budget 2
    """
    from spotctl.files.job.given_options import GivenOptions
    from spotctl.files.job.reader import load_all

    session: Session = context.obj
    given = GivenOptions(name, budget, (*(env or ()),), (*(sweep or ()),))
    jobs = load_all(files, given, home=session.settings.home, to_launch=True)
    specs, files = [spec for spec, _ in jobs], [file for _, file in jobs]
    # Imported here, so that a refused file costs none of it.
    from spotctl.cli.runs import launches, window
    from spotctl.cli.runs.launches import launch_here
    from spotctl.cli.runs.live_runs import line_printer
    from spotctl.show.plans import plan_answers, plan_tables

    json_ |= json_lines
    asks = session.in_terminal and not (rehearse or yes or dry_run or json_)
    if rehearse or asks:
        from spotctl.cli.script_trial import rehearsed_jobs

        specs = rehearsed_jobs(session, specs, asks=asks)

    order, planned = launches.prepare(
        session, specs, max_cost, files, attached=attached, fresh=fresh, metrics=metrics
    )
    if given:
        order = launches.with_kept_files(session, order)

    plans = planned.plans
    on_ray = None if plans else order.specs[0]
    if output is ShownOutput.SCRIPT and order.moves:
        raise BadRequest(
            "--output script: the runner moves to a machine, with the output: use spotctl logs -f, "
            "or --attached"
        )
    if dry_run and json_:
        answers = [plan_answers.answer(on_ray)] if on_ray else plan_answers.answers(planned)
        session.answer_json(answers[0] if len(answers) == 1 else answers)
        return

    for job_plan in () if json_ else plans:
        session.out.print(plan_tables.plan_view(job_plan, session.out.width, explain=False))
    if on_ray and not json_:
        session.out.print(plan_answers.plan_text(on_ray))

    if dry_run or not (yes or on_ray or confirm(session)):
        return

    show = line_printer(
        session.settings, output, as_json_lines=json_lines, several=len(order.specs) > 1
    )
    if session.in_terminal and not (foreground or json_):
        names = [spec.name for spec in order.specs]
        window.hand_over(session, order, names, debug=is_debug(context), show=show)

    launch_here(session, order, plans, show, json_=json_, is_said=json_lines)


def resume(
    context: typer.Context,
    job: JobOrPlaceArgument,
    foreground: ForegroundOption = False,
    budget: Annotated[
        str,
        typer.Option(
            metavar="USD", help="Only set what the run may cost in all, from now on: 8 or 12.50."
        ),
    ] = "",
    metrics: MetricsOption = "",
    json_: JsonOption = False,
) -> None:
    """Pick up a run after a crash, or show a run that goes on. Nothing is bought twice.

    With --budget, the command only sets the run's budget, to which the runner keeps from its next
    turn on. A budget below what is spent, or committed until the leases end, is refused. A run that
    already ends is launched again.

    A job whose launcher was killed while it waited for its turn begins once the jobs before it have
    ended.

    A run that has ended is shown as it ended.

    If the runner lives on a rented machine, this command watches the run; if it was launched from
    another computer, give its place. On a terminal, it also shows a run that another process of
    this computer attends to.

    Example: spotctl resume nightly-recsys

    Example: spotctl resume nightly-recsys --budget 12.50
    """
    if budget:
        _set_budget(context.obj, job, budget, json_=json_)
        return

    from spotctl.cli.runs import remote_runner, window
    from spotctl.cli.runs.launches import resume_here
    from spotctl.cli.runs.live_runs import finish
    from spotctl.home.paths import Paths
    from spotctl.log.jobs import left_behind
    from spotctl.log.statuses import latest_ending
    from spotctl.show.metrics import publishing
    from spotctl.show.runs.reading import RunViews

    session: Session = context.obj
    waits = left_behind(Paths(session.settings.home), job)
    if "://" in job:
        job = remote_runner.attached(session, job).job
    client = remote_runner.client_of(session, job)

    if client is not None:
        session.remark(
            f"run {client.place.run}: its runner lives on {client.runner()}; this command only "
            "watches"
        )
        with publishing(metrics, RunViews(session.settings), session.remark) as publish:
            ending = remote_runner.follow(session, client.place, publish)
        finish(session, ending, json_=json_)

    if waits is None and (ended := latest_ending(session.settings, job)) is not None:
        session.remark(f"{ended[0].run} has ended; nothing is left to resume")
        finish(session, ended, json_=json_)

    if session.in_terminal and not (foreground or json_):
        window.resume(session, job, metrics, debug=is_debug(context))
    resume_here(session, job, metrics, json_=json_)


def _set_budget(session: Session, job: str, amount: str, *, json_: bool) -> None:
    """Sets the budget of a run here, or where its runner lives."""
    from pricing_data.units import MAX_USD, parse_usd, usd, usd_text
    from spotctl.cli.runs import remote_runner
    from spotctl.run.start.budgets import set_budget
    from spotctl.show.columns import as_json
    from spotctl.show.runs.run_answers import BUDGET_SET

    limit = parse_usd(amount, "--budget", MAX_USD, unit="") * 3600
    if "://" in job:
        job = remote_runner.attached(session, job).job
    remote_runner.pass_on(
        session, job, "resume", job, "--budget", amount, *(["--json"] if json_ else [])
    )
    run, before = set_budget(job, session.settings, limit)
    earlier = "no budget" if before is None else usd_text(usd(before))
    session.answer(
        json_,
        as_json(BUDGET_SET, {"run": run, "limit": limit, "earlier": before}),
        f"run {run}: budget {usd_text(usd(limit))}, earlier {earlier}",
    )


def confirm(session: Session) -> bool:
    if not sys.stdin.isatty():
        raise BadRequest(
            "no terminal to ask for confirmation on: pass --yes; spotctl plan shows the plan only"
        )
    session.out.print("")
    return typer.confirm("Rent these machines?")
