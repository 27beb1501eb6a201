"""Groups of commands that start fast: a command line builds only the command that it names.

Names of commands and options that are gone are errors, which say what has replaced them.
"""

import copy
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from spotctl.home.errors import BadRequest


class CommandGroup(TyperGroup):
    """A group of commands, whose own options are processed before those of every command, even for
    `COMMAND --help`.

    Typer converts values with pydantic, whose import takes longer than all else that a help page
    needs. Texts, defaults and options that were not given have nothing to convert, and a path can
    be read or does not exist.
    """

    # Typer exports no type of its context's base.
    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        return _rarely_converted(super().get_params, ctx)

    # Typer exports no type of its commands' base.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """The command, with a help text that wraps where the terminal ends instead of where the
        source does.
        """
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            # What follows a form feed describes the fields of --json, for the reference.
            text = command.help.partition("\f")[0].rstrip()
            paragraphs = list[str]()
            for paragraph in text.split("\n\n"):
                lines = [line.strip() for line in paragraph.strip().splitlines()]
                # Examples, lists and what is marked as preformatted keep their lines.
                keeps = "\b" in paragraph
                keeps |= any(line.startswith(("Example", "- ")) for line in lines)
                paragraphs.append(paragraph if keeps else " ".join(lines))
            command.help = "\n\n".join(paragraphs)

        if command is not None and not isinstance(command, CommandGroup):
            command.get_params = partial(
                _rarely_converted, partial(type(command).get_params, command)
            )
        return command


# As above.
def _rarely_converted(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:  # noqa: ANN401
    """The parameters, which skip the conversion of values that need none."""
    params = get_params(ctx)
    for param in params:
        param.process_value = partial(_converted, param, type(param).process_value)
    return params


def _converted(
    param: Any,  # noqa: ANN401
    convert: Callable[[Any, Any, Any], Any],
    ctx: typer.Context,
    value: object,
) -> object:  # Typer exports no type of its options
    kind = param.type_descriptor.annotation
    if (
        isinstance(value, str)
        and kind is Path
        and (os.access(value, os.R_OK) or not Path(value).exists())
    ):
        value = Path(value)

    # An option of several choices has one of them as its default.
    is_text = isinstance(value, str) and isinstance(kind, type) and isinstance(value, kind)
    is_default = not isinstance(value, str | list | tuple) and not (
        value is None and param.required
    )
    if is_text or is_default:
        return param.callback(ctx, param, value) if param.callback else value

    return convert(param, ctx, value)


def named_part(whole: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The command that a command line names, with its groups. If it names none, what a help page
    lists.

    Typer builds all commands of an app before it looks at the command line, which takes longer than
    most commands do.
    """
    left = after_global_options(words)
    name = left[0] if left else ""
    commands = [
        command
        for command in whole.registered_commands
        if name in (command.name, getattr(command.callback, "__name__", ""))
    ]

    groups = [group for group in whole.registered_groups if group.name == name]
    if not commands and not groups:
        return _outline(whole)

    part = copy.copy(whole)
    part.registered_commands, part.registered_groups = (
        commands,
        [copy.copy(group) for group in groups],
    )
    for group in part.registered_groups:
        assert group.typer_instance is not None
        group.typer_instance = named_part(group.typer_instance, left[1:])

    return part


def after_global_options(words: Sequence[str]) -> Sequence[str]:
    """A command line from its first command on. What follows -- belongs to another program, and is
    left out.
    """
    words = words[: words.index("--")] if "--" in words else words
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] == "--home" else 1
    return words[at:]


def _outline(whole: typer.Typer) -> typer.Typer:
    """The names and descriptions of an app's commands and groups."""
    part = copy.copy(whole)
    part.registered_commands = [copy.copy(command) for command in whole.registered_commands]
    for command in part.registered_commands:

        def described() -> None:
            """Takes no parameters: reading those of a command is what takes time."""

        if command.callback is not None:
            described.__name__ = command.callback.__name__
            described.__doc__ = command.callback.__doc__
        command.callback = described
    part.registered_groups = [copy.copy(group) for group in whole.registered_groups]

    for group in part.registered_groups:
        group.typer_instance = inside = copy.copy(group.typer_instance)
        assert inside is not None
        inside.registered_commands = []
        inside.registered_groups = []
    return part


GONE = ""

REMOVED = {
    "top": "status --watch",
    "down": "stop",
    "attach": "resume",
    "admit": "ssh --admit",
    "train": "lab train",
    "beta": "lab beta",
    "backtest": "lab backtest",
    "gavel": "lab gavel",
    "parallel": "lab parallel",
    **{
        f"prices {name}": f"lab prices {name}"
        for name in (
            "backup",
            "correct",
            "egress",
            "export",
            "ls",
            "plot",
            "snapshot",
            "sql",
        )
    },
    **{
        f"{prices} {name}": now
        for prices in ("prices", "lab prices")
        for name, now in {
            "watch": "prices best --below",
            "stats": "lab prices ls --stats",
            "gaps": "lab prices ls --gaps",
            "check": "lab prices ls --check",
            "corrections": "lab prices correct --list",
        }.items()
    },
    **dict.fromkeys(("prices sources", "lab prices sources"), "prices fetch --sources"),
    "lab prices snapshot make": "lab prices snapshot",
    "lab prices snapshot add": "prices import",
    "prices fetch --product": "prices fetch --os",
    **dict.fromkeys(("lab prices egress --at", "lab prices egress --after-gb"), GONE),
    "lab beta plot": "lab beta show --plot",
    **{f"lab beta show --{option}": GONE for option in ("age", "lifetimes", "availability")},
    **{f"lab beta calibrate --{option}": GONE for option in ("step", "learner", "seed")},
    "lab backtest compare": "lab backtest run --against",
    "lab backtest frontier": "lab backtest run --frontier",
    "lab train --minutes": "lab train --seconds",
    "lab train --listen": "lab train --address",
    **{
        f"lab train --{name}-timeout": f"lab train --timeouts {name}=SECONDS"
        for name in ("heartbeat", "hang", "startup")
    },
    **{
        f"lab parallel {command} --{option}": f"lab parallel {command} --split"
        for command in ("plan", "train")
        for option in (
            "scheme",
            "stages",
            "replicas",
            "chunks",
            "tensor",
            "recompute",
            "no-recompute",
            "allow-delay",
        )
    },
    **{f"lab parallel train --{option}": GONE for option in ("every", "hang-timeout")},
    "lab parallel plan --tensors": GONE,
    **{
        f"lab parallel transformer --{option}": GONE
        for option in ("bytes-per-parameter", "microbatch", "chunks", "scatter")
    },
    **{
        f"lab gavel analyze --{option}": "lab gavel analyze SCENARIO.yaml"
        for option in (
            *(
                "throughputs",
                "prices",
                "markets",
                "on-demand",
                "jobs",
                "home",
                "baseline",
                "days",
                "starts",
            ),
            *("dataset-gb", "checkpoint-gb", "dataset-on", "move", "evictions", "machine"),
        )
    },
}
"""Commands and options that are gone, with what replaced each, or `GONE`."""


def check_not_removed(words: Sequence[str]) -> None:
    """Raises `BadRequest` for a command line, from its first command on, that uses a removed
    name."""
    for name, now in REMOVED.items():
        *command, last = name.split()
        begins = list(words[: len(command)]) == command
        rest = words[len(command) :]
        is_used = (
            last in (word.split("=")[0] for word in rest)
            if last.startswith("--")
            else list(rest[:1]) == [last]
        )
        if begins and is_used:
            raise BadRequest(
                f"{name} is now `spotctl {now}`" if now else f"{name} is gone; nothing replaces it"
            )
