"""Pages of the site that are made from the code: all commands, all keys of the job file, and what `--json` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from spotctl.cli.app import app
from spotctl.files.job.schema import schema


def write(folder: Path) -> None:
    """Writes the pages, and touches none that is up to date."""
    folder.mkdir(exist_ok=True)
    for name, lines in {"commands": commands(), "job-file": job_file()}.items():
        text, path = "\n".join(lines) + "\n", folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands() -> Iterator[str]:
    """A section for each command, with its help, arguments and options."""
    yield "# Commands\n\nWhat `spotctl COMMAND --help` says, for all commands."
    yield from _commands(get_command(app), "spotctl")


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from () if inner.hidden else _commands(inner, f"{name} {word}")
        return
    yield f"\n## {name}\n\n{_prose(command.help)}\n"
    yield "| argument or option | |\n| --- | --- |"
    yield from (f"| {_names(one)} | {_cell(one.help or '')} |" for one in command.params if not one.hidden)


def _prose(help_text: str) -> str:
    """Paragraphs on one line each; what follows "Example:" is code."""
    parts = [" ".join(part.split()) for part in help_text.replace("\b", "").split("\n\n")]
    return "\n\n".join(re.sub(r"^Example: (.*)", r"Example: `\1`", part) for part in parts)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.name or '').upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def job_file() -> Iterator[str]:
    """A table of keys for the job file itself and for each of its sections."""
    whole = schema()
    yield "# Job file\n\n`spotctl init` writes a commented one, `spotctl schema` prints a JSON Schema for editors.\n"
    yield from _keys(whole)
    for name, section in sorted(whole["$defs"].items()):
        if "properties" in section:
            yield f"\n## {name}\n\n{section.get('description', '')}\n"
            yield from _keys(section)


def _keys(section: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | meaning |\n| --- | --- |"
    for key, value in section["properties"].items():
        example = _cell(json.dumps(value["examples"][0], ensure_ascii=False)) if value.get("examples") else ""
        yield f"| `{key}` | {_cell(value.get('description', ''))}{f' Example: `{example}`' if example else ''} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
