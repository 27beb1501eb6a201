"""`spotctl`: all commands, the options that they share, and the only place that exits the
process."""

import atexit
import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pricing_data.interruptible import is_work_left
from spotctl.cli import (
    doctor,
    init,
    launch,
    nightly,
    plan,
    remote,
    report,
    returning,
    setting_up,
    status,
    trying,
)
from spotctl.cli.boundary import INTERRUPTED, exit_code_of, warning_line
from spotctl.cli.command_groups import (
    CommandGroup,
    after_global_options,
    check_not_removed,
    named_part,
)
from spotctl.cli.lab import backtest, beta, gavel, parallel, parallel_train, reproduce, train
from spotctl.cli.prices import fetch, markets, ranked_offers
from spotctl.cli.session import Session

_CLOSE_SECONDS = 2.0
"""How long an interrupted command may take to close what it has open."""

_START, _RUNS, _MONEY = "Get started", "Runs", "Costs and prices"

_COMMANDS: tuple[tuple[str, str, Callable[..., None], str], ...] = (
    (_START, "init", init.init, "Write a job file for your training script."),
    (_START, "plan", plan.plan, "Show what would be rented, for how much, and why."),
    (
        _START,
        "launch",
        launch.launch,
        "Rent machines, keep a job running, shut every machine down.",
    ),
    (_START, "setup", setting_up.setup, "Set up a cloud account once: rights, bucket, quotas."),
    (_START, "try", trying.try_, "Run one command on a cloud's smallest machine, for a dollar."),
    (_START, "doctor", doctor.doctor, "Check versions, credentials, quotas and leftovers."),
    (_START, "schema", init.schema, "Print the JSON Schema of job files, for your editor."),
    (_RUNS, "status", status.status, "Show machines, progress and cost; --watch shows them live."),
    (_RUNS, "ui", status.ui, "Show money, runs and nights in a browser; stop and resume runs."),
    (_RUNS, "logs", remote.logs, "Show the output of a job's machines."),
    (_RUNS, "stop", returning.stop, "Stop a job, or all jobs, and return the machines."),
    (_RUNS, "resume", launch.resume, "Show a run again, or pick it up after a crash."),
    (_RUNS, "ssh", remote.ssh, "Open a shell on a machine of a job."),
    (_RUNS, "exec", remote.exec_, "Run a command on a machine of a job."),
    (_RUNS, "gc", returning.gc, "Remove whatever no active run owns, on any cloud."),
)


def _all_commands() -> typer.Typer:
    whole = typer.Typer(
        name="spotctl",
        cls=CommandGroup,
        help="Train machine-learning models on cheap, revocable cloud machines, without "
        "babysitting.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 no capacity in time, 4 "
        "budget reached, 5 credentials or permission, 6 already running.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )

    for panel, name, command, short in _COMMANDS:
        cls = init.InitCommand if name == "init" else None
        whole.command(name, cls=cls, rich_help_panel=panel, short_help=short)(command)
    prices = _group(
        "Import, fetch, show and export spot prices.",
        {
            "best": ranked_offers.best,
            "import": fetch.import_,
            "fetch": fetch.fetch,
            "show": markets.show,
        },
    )

    for panel, name, group in (
        (_RUNS, "nightly", nightly.app),
        (_RUNS, "log", doctor.log_app),
        (_MONEY, "report", report.app),
        (_MONEY, "prices", prices),
        (_MONEY, "lab", _lab()),
    ):
        whole.add_typer(group, name=name, rich_help_panel=panel, cls=CommandGroup)

    return whole


def _lab() -> typer.Typer:
    pipelines = _group(
        "Split a model over several devices: profile, plan, simulate and train.",
        {
            "plan": parallel.plan,
            "profile": parallel.profile,
            "simulate": parallel.simulate,
            "train": parallel_train.train,
            "transformer": parallel.transformer,
        },
    )

    prices = _group(
        "Look into the stored prices, correct, check and share them.",
        {
            "ls": markets.ls,
            "plot": markets.plot,
            "sql": markets.sql,
            "export": markets.export,
            "egress": markets.egress,
            "backup": fetch.backup,
            "correct": fetch.correct,
            "snapshot": fetch.snapshot,
        },
    )

    lab = _group(
        "Analyses: evictions, backtests, Gavel, pipelines, prices, papers.",
        {"train": train.train, "reproduce": reproduce.reproduce},
    )

    for name, group in (
        ("beta", beta.app),
        ("backtest", backtest.app),
        ("gavel", gavel.app),
        ("parallel", pipelines),
        ("prices", prices),
    ):
        lab.add_typer(group, name=name, cls=CommandGroup)

    return lab


def _group(help_text: str, commands: Mapping[str, Callable[..., object]]) -> typer.Typer:
    group = typer.Typer(help=help_text, no_args_is_help=True)
    for name, command in commands.items():
        group.command(name)(command)
    return group


app = _all_commands()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"spotctl {version('spotctl')}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Folder for prices, logs and config.toml.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log to stderr and show tracebacks.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    # SDKs and retries log details that a user cannot act on; what matters is raised as an error.
    if debug:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    else:
        logging.getLogger().addHandler(logging.NullHandler())
    context.obj = Session(home)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and exits with one of the documented codes."""
    # Collecting is a twentieth of a plan's processor time: what a command loads, it keeps.
    gc.set_threshold(50_000, 20, 100)
    # A scheduler may close the standard streams. What is opened next, a socket or the log, would
    # take their place.
    while (empty := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(empty, True)
    os.close(empty)
    sys.stdin, sys.stdout, sys.stderr = (
        stream or os.fdopen(number, "r" if number == 0 else "w")
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
    )
    debug, words = debug_first(sys.argv[1:] if arguments is None else arguments)
    warnings.formatwarning = warning_line  # type: ignore[assignment] # its parameters are not named alike
    code = exit_code_of(partial(_run, words), debug=debug)
    if arguments is None:
        end_at_once(code)
    sys.exit(code)


def _run(words: Sequence[str]) -> object:
    # A shell that completes a command line says so in the environment, and may need any command.
    if "_SPOTCTL_COMPLETE" in os.environ:
        return app(words, prog_name="spotctl", standalone_mode=False)
    check_not_removed(after_global_options(words))
    return named_part(app, words)(words, prog_name="spotctl", standalone_mode=False)


def end_at_once(code: int) -> None:
    """Ends a process of its own without waiting for threads and workers whose results are not
    needed any more.

    They may wait for a server that does not answer, or be inside of a C library.
    """
    if code == INTERRUPTED or is_work_left():
        from multiprocessing import (
            active_children,
        )  # takes longer to import than most commands need to end

        threading.excepthook = lambda _: None  # threads that lose their workers have nothing to say
        for worker in active_children():
            worker.kill()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # All that Python does at its end, except to wait for threads. A queue waits for a worker to
        # read from it.
        closing = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        os._exit(code)


def debug_first(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --debug is given, and the words with it in front, where Typer expects it.

    What follows -- belongs to another program.
    """
    end = words.index("--") if "--" in words else len(words)
    others = [word for word in words[:end] if word != "--debug"]
    debug = len(others) < end
    return debug, [*(["--debug"] if debug else []), *others, *words[end:]]
