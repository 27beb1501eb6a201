"""The commands that help shows, the analyses in `lab`, and earlier names, which stay."""

import copy
from collections.abc import Callable, Collection

import typer

from spotctl.cli import (
    admit,
    beta,
    elsewhere,
    event_log,
    jobfile,
    launch,
    logs,
    nightly,
    plan,
    remote,
    report,
    returning,
    status,
    train,
    trying,
    ui,
)
from spotctl.cli.backtest import commands as backtest
from spotctl.cli.command_groups import CommandGroup
from spotctl.cli.doctor import command as doctor
from spotctl.cli.gavel import commands as gavel
from spotctl.cli.parallel import commands as parallel
from spotctl.cli.prices import commands as prices, snapshot as prices_snapshot

_START, _RUNS, _MONEY = "Get started", "Runs", "Costs and prices"
_DAILY_PRICES = ("best", "fetch", "import", "show")

EARLIER = {
    "down": "stop",
    "attach": "resume",
    "train": "lab train",
    "beta": "lab beta",
    "backtest": "lab backtest",
    "gavel": "lab gavel",
    "parallel": "lab parallel",
}
"""Names that help does not show, with all their options, and the name that it shows. `log` is for damaged logs only."""

_DOWN = """Stop one job, or all jobs, and return the machines. With --all, --json prints a list.

Example: spotctl stop --all"""


_COMMANDS: tuple[tuple[str, str, Callable[..., None], str], ...] = (
    (_START, "init", jobfile.init, "Write a job file for your training script."),
    (_START, "plan", plan.plan, "Show what would be rented, for how much, and why."),
    (_START, "launch", launch.launch, "Rent machines, keep a job running, shut every machine down."),
    (_START, "try", trying.try_, "Run one command on a cloud's smallest machine, for a dollar."),
    (_START, "doctor", doctor.doctor, "Check versions, credentials, quotas and leftovers."),
    (_START, "schema", jobfile.schema, "Print the JSON Schema of job files, for your editor."),
    (_RUNS, "status", status.status, "Show machines, progress and cost; --watch shows them live."),
    (_RUNS, "ui", ui.ui, "Show all runs and nights in a browser."),
    (_RUNS, "logs", logs.logs, "Show the output of a job's machines."),
    (_RUNS, "stop", returning.stop, "Stop a job, or all jobs, and return the machines."),
    (_RUNS, "resume", launch.resume, "Show a run again, or pick it up after a crash."),
    (_RUNS, "ssh", remote.ssh, "Open a shell on a machine of a job."),
    (_RUNS, "exec", remote.exec_, "Run a command on a machine of a job."),
    (_RUNS, "admit", admit.admit, "Allow ssh to the machines from these addresses only."),
    (_RUNS, "gc", returning.gc, "Remove whatever no active run owns, on any cloud."),
)

_ANALYSES = (
    ("beta", beta.app),
    ("backtest", backtest.app),
    ("gavel", gavel.app),
    ("parallel", parallel.app),
)


def add_commands(app: typer.Typer) -> None:
    """Adds all commands to `spotctl`."""
    for panel, name, command, short in _COMMANDS:
        app.command(name, rich_help_panel=panel, short_help=short)(command)
    app.add_typer(nightly.app, name="nightly", rich_help_panel=_RUNS, cls=CommandGroup)
    app.add_typer(report.app, name="report", rich_help_panel=_MONEY, cls=CommandGroup)
    price_analyses = _without_analyses(prices.app, _DAILY_PRICES)
    app.add_typer(prices.app, name="prices", rich_help_panel=_MONEY, cls=CommandGroup)
    app.add_typer(_lab(price_analyses), name="lab", rich_help_panel=_MONEY, cls=CommandGroup)
    for name, command, help_text in (
        ("down", returning.stop, _DOWN),
        ("attach", elsewhere.attach, None),
        ("train", train.train, None),
    ):
        app.command(name, hidden=name in EARLIER, help=help_text)(command)
    for name, group in (("log", event_log.app), *_ANALYSES):
        app.add_typer(group, name=name, hidden=True, cls=CommandGroup)


def _lab(price_analyses: typer.Typer) -> typer.Typer:
    lab = typer.Typer(
        help="Analyses: evictions, backtests, Gavel, pipelines, price history.",
        no_args_is_help=True,
    )
    lab.command("train")(train.train)
    for name, group in (*_ANALYSES, ("prices", price_analyses)):
        lab.add_typer(group, name=name, cls=CommandGroup)
    return lab


def _without_analyses(group: typer.Typer, daily: Collection[str]) -> typer.Typer:
    """Hides the commands of the price group that are not needed daily; returns a group that shows them."""
    analyses = typer.Typer(help="Look into the stored prices, correct, check and share them.", no_args_is_help=True)
    for command in group.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        if name not in daily:
            analyses.registered_commands.append(copy.copy(command))
            command.hidden = True
    analyses.add_typer(prices_snapshot.app, name="snapshot", cls=CommandGroup)
    group.add_typer(prices_snapshot.app, name="snapshot", hidden=True, cls=CommandGroup)
    return analyses
