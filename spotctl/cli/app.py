"""`spotctl`: the options of all commands, and the only place that exits the process."""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pricing_data.interruptible import is_work_left
from spotctl.cli import surface
from spotctl.cli.boundary import INTERRUPTED, exit_code_of
from spotctl.cli.command_groups import CommandGroup, named_part
from spotctl.cli.session import Session

_CLOSE_SECONDS = 2.0
"""How long an interrupted command may take to close what it has open."""

app = typer.Typer(
    name="spotctl",
    cls=CommandGroup,
    help="Train machine-learning models on cheap, revocable cloud machines, without babysitting.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 no capacity in time, 4 budget reached,"
    " 5 credentials or permission, 6 already running.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
surface.add_commands(app)


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
    debug: Annotated[bool, typer.Option("--debug", help="Log to stderr and show tracebacks.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
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
    debug, words = debug_first(sys.argv[1:] if arguments is None else arguments)
    # A shell that completes a command line says so in the environment, and may need any command.
    part = app if "_SPOTCTL_COMPLETE" in os.environ else named_part(app, words)
    code = exit_code_of(lambda: part(words, prog_name="spotctl", standalone_mode=False), debug=debug)
    if arguments is None:
        end_at_once(code)
    sys.exit(code)


def end_at_once(code: int) -> None:
    """Ends a process of its own without waiting for threads and workers whose results are not needed any more.

    They may wait for a server that does not answer, or be inside of a C library.
    """
    if code == INTERRUPTED or is_work_left():
        from multiprocessing import active_children  # takes longer to import than most commands need to end

        threading.excepthook = lambda _: None  # threads that lose their workers have nothing to say
        for worker in active_children():
            worker.kill()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # All that Python does at its end, except to wait for threads. A queue waits for a worker to read from it.
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
