"""`spotctl`: all command groups, and the only place that exits the process."""

import atexit
import copy
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pricing_data.interruptible import is_work_left
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
    top,
    train,
    trying,
)
from spotctl.cli.backtest import commands as backtest
from spotctl.cli.boundary import INTERRUPTED, exit_code_of
from spotctl.cli.doctor import command as doctor
from spotctl.cli.gavel import commands as gavel
from spotctl.cli.parallel import commands as parallel
from spotctl.cli.prices import commands as prices, snapshot as prices_snapshot
from spotctl.cli.session import Session

_CLOSE_SECONDS = 2.0
"""How long an interrupted command may take to close what it has open."""


class _CommandGroup(TyperGroup):
    """A group of commands, whose own options are processed before those of every command, even for `COMMAND --help`.

    Typer converts values with pydantic, whose import takes longer than all else that a help page needs. Texts, defaults
    and options that were not given have nothing to convert, and a path can be read or does not exist.
    """

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  # Typer exports no type of its context's base
        return _rarely_converted(super().get_params, ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  # Typer exports no type of its commands' base
        """The command, with a help text that wraps where the terminal ends instead of where the source does."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            # What follows a form feed describes the fields of --json, for the reference.
            text = command.help.partition("\f")[0].rstrip()
            command.help = "\n\n".join(map(_unwrapped, text.split("\n\n")))
        if command is not None and not isinstance(command, _CommandGroup):
            command.get_params = partial(_rarely_converted, partial(type(command).get_params, command))
        return command


def _rarely_converted(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:  # noqa: ANN401  # as above
    """The parameters, which skip the conversion of values that need none."""
    params = get_params(ctx)
    for param in params:
        param.process_value = partial(_converted, param, type(param).process_value)
    return params


def _unwrapped(paragraph: str) -> str:
    """A paragraph in one line, unless its lines are examples, a list or marked as preformatted."""
    lines = [line.strip() for line in paragraph.strip().splitlines()]
    keeps = "\b" in paragraph or any(line.startswith(("Example", "- ")) for line in lines)
    return paragraph if keeps else " ".join(lines)


def _converted(param: Any, convert: Callable[[Any, Any, Any], Any], ctx: typer.Context, value: object) -> object:  # noqa: ANN401  # Typer exports no type of its options
    kind = param.type_descriptor.annotation
    if isinstance(value, str) and kind is Path and (os.access(value, os.R_OK) or not Path(value).exists()):
        value = Path(value)
    # An option of several choices has one of them as its default.
    is_text = isinstance(value, str) and isinstance(kind, type) and isinstance(value, kind)
    is_default = not isinstance(value, str | list | tuple) and not (value is None and param.required)
    if is_text or is_default:
        return param.callback(ctx, param, value) if param.callback else value
    return convert(param, ctx, value)


def named_part(whole: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The command that a command line names, with its groups. If it names none, what a help page lists.

    Typer builds all commands of an app before it looks at the command line, which takes longer than most commands do.
    """
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] == "--home" else 1
    name = words[at] if at < len(words) else ""
    commands = [
        command
        for command in whole.registered_commands
        if name in (command.name, getattr(command.callback, "__name__", ""))
    ]
    groups = [group for group in whole.registered_groups if group.name == name]
    if not commands and not groups:
        return _outline(whole)
    part = copy.copy(whole)
    part.registered_commands, part.registered_groups = commands, [copy.copy(group) for group in groups]
    for group in part.registered_groups:
        assert group.typer_instance is not None
        group.typer_instance = named_part(group.typer_instance, words[at + 1 :])
    return part


def _outline(whole: typer.Typer) -> typer.Typer:
    """The names and descriptions of an app's commands and groups."""
    part = copy.copy(whole)
    part.registered_commands = [copy.copy(command) for command in whole.registered_commands]
    for command in part.registered_commands:
        command.callback = _described(command.callback)
    part.registered_groups = [copy.copy(group) for group in whole.registered_groups]
    for group in part.registered_groups:
        group.typer_instance = inside = copy.copy(group.typer_instance)
        assert inside is not None
        inside.registered_commands, inside.registered_groups = [], []
    return part


def _described(command: Callable[..., Any] | None) -> Callable[[], None]:
    def described() -> None:
        """Takes no parameters: reading those of a command is what takes time."""

    if command is not None:
        described.__name__, described.__doc__ = command.__name__, command.__doc__
    return described


app = typer.Typer(
    name="spotctl",
    cls=_CommandGroup,
    help="Train machine-learning models on cheap, revocable cloud machines, without babysitting.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 no capacity in time, 4 budget reached,"
    " 5 credentials or permission, 6 already running.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_START, _RUNS, _ANALYZE = "Get started", "Runs", "Analyze"
for _name, _command, _panel in (
    ("init", jobfile.init, _START),
    ("schema", jobfile.schema, _START),
    ("plan", plan.plan, _START),
    ("launch", launch.launch, _START),
    ("try", trying.try_, _START),
    ("train", train.train, _START),
    ("doctor", doctor.doctor, _START),
    ("status", status.status, _RUNS),
    ("top", top.top, _RUNS),
    ("logs", logs.logs, _RUNS),
    ("attach", elsewhere.attach, _RUNS),
    ("admit", admit.admit, _RUNS),
    ("exec", remote.exec_, _RUNS),
    ("ssh", remote.ssh, _RUNS),
    ("resume", launch.resume, _RUNS),
    ("stop", returning.stop, _RUNS),
    ("down", returning.down, _RUNS),
    ("gc", returning.gc, _RUNS),
):
    app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(nightly.app, name="nightly", rich_help_panel=_RUNS, cls=_CommandGroup)
app.add_typer(event_log.app, name="log", rich_help_panel=_RUNS, cls=_CommandGroup)
prices.app.add_typer(prices_snapshot.app, name="snapshot", cls=_CommandGroup)
for _name, _group in (
    ("report", report.app),
    ("prices", prices.app),
    ("beta", beta.app),
    ("backtest", backtest.app),
    ("gavel", gavel.app),
    ("parallel", parallel.app),
):
    app.add_typer(_group, name=_name, rich_help_panel=_ANALYZE, cls=_CommandGroup)


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
            help="Folder for prices, logs and config.toml. Default: SPOTCTL_HOME, or the platform's data folder.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log to stderr and show tracebacks. May stand anywhere in the command.")
    ] = False,
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
