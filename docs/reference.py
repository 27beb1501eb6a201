"""Pages of the site that are made from the code: all commands, all keys of the job file, and what
`--json` prints.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from json_commands import CRONTAB, JOB, JSON_COMMANDS, OTHER_ANSWERS, RECORDED, SAME, WRITTEN, files
from meanings import documented, meanings
from typer.main import get_command

from spotctl.cli.app import app
from spotctl.cli.command_groups import REMOVED
from spotctl.files.job.reader import schema
from spotctl.show import metrics as metrics_text


def write(folder: Path) -> None:
    """Writes the pages, and touches none that is up to date."""
    folder.mkdir(exist_ok=True)
    for name, lines in {
        "commands": commands(),
        "job-file": job_file(),
        "json": json_output(),
        "metrics": metrics(),
    }.items():
        text, path = "\n".join(lines) + "\n", folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands() -> Iterator[str]:
    """A section for each command, with its help, arguments and options, and the names that are
    gone.
    """
    yield "# Commands\n\nWhat `spotctl COMMAND --help` says, for all commands."
    yield from _commands(_surface(), "spotctl")
    yield "\n## Removed names\n\nA command line with one ends with exit code 2 and a line that says what there is now."
    yield "\n| removed | now |\n| --- | --- |"
    yield from (
        f"| `spotctl {name}` | {f'`spotctl {now}`' if now else 'nothing'} |"
        for name, now in REMOVED.items()
    )


@cache
def _surface() -> Any:
    """All commands. Typer makes them anew each time it is asked, which takes most of a second."""
    return get_command(app)


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from () if inner.hidden else _commands(inner, f"{name} {word}")
        return
    yield f"\n## {name}\n\n{_prose(command.help)}\n"
    yield "| argument or option | |\n| --- | --- |"
    yield from (
        f"| {_names(one)} | {_cell(one.help or '')} |" for one in command.params if not one.hidden
    )


def _prose(help_text: str) -> str:
    """Paragraphs on one line each; what follows "Example:" is code."""
    parts = [
        " ".join(part.split())
        for part in help_text.partition("\f")[0].rstrip().replace("\b", "").split("\n\n")
    ]
    return "\n\n".join(re.sub(r"^Example: (.*)", r"Example: `\1`", part) for part in parts)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.name or '').upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


NEEDS = {
    "What every job has": ("name", "kind", "run", "app", "trainer", "resources", "hours", "budget"),
    "To lose no work to evictions": ("checkpoint", "retries"),
    "To bring code, data and secrets, and keep results": (
        *(
            "workdir",
            "environment",
            "setup",
            "image",
            "env",
            "secrets",
            "data",
            "data_buckets",
            "outputs",
            "identity",
        ),
    ),
    "To be done by a time, or for less": (
        *("deadline", "objective", "strategy", "max_bid", "most", "value_of_time", "throughputs"),
    ),
    "To train on several machines": (
        "nodes",
        "num_nodes",
        "parallel",
        "stragglers",
        "wire",
        "engine",
        "address",
    ),
    "To say how a trainer trains and ends": ("args", "stop"),
    "To hear of runs, and to account for them": ("notify", "track", "tags", "queue"),
    "To try a job on this computer": ("local",),
}
"""The keys of a job file by what they are for."""


def job_file() -> Iterator[str]:
    """A table of keys for each need, and for each section of the file."""
    whole = schema()
    yield "# Job file\n\n`spotctl init` writes a commented one, and `spotctl schema KEY` explains a key. `name`, `run`,"
    yield "`resources`, `checkpoint`, `hours` and `budget` are enough for most scripts.\n"
    grouped = [key for keys in NEEDS.values() for key in keys]
    if sorted(grouped) != sorted(whole["properties"]):
        raise SystemExit(
            f"NEEDS in docs/reference.py: correct {sorted({*grouped} ^ {*whole['properties']})}"
        )
    for need, keys in NEEDS.items():
        yield f"\n## {need}\n"
        yield from _keys({"properties": {key: whole["properties"][key] for key in keys}})
    for name, section in sorted(whole["$defs"].items()):
        if "properties" in section:
            yield f"\n## {name}\n\n{section.get('description', '')}\n"
            yield from _keys(section)


def _keys(section: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | meaning |\n| --- | --- |"
    for key, value in section["properties"].items():
        example = (
            _cell(json.dumps(value["examples"][0], ensure_ascii=False))
            if value.get("examples")
            else ""
        )
        yield f"| `{key}` | {_cell(value.get('description', ''))}{f' Example: `{example}`' if example else ''} |"


ROOT = Path(__file__).parents[1]


def json_output() -> Iterator[str]:
    """For each command, the keys of what it really prints, with their types and meanings."""
    yield "# JSON\n\nEvery command has `--json`. These tables are made from what commands print in a clone. They"
    yield f"launch this `job.yaml`:\n\n```yaml\n{JOB}```\n"
    yield "`list[].key` is a key of each element of a list, and `*` stands for a name. A key without a type does not"
    yield "occur in this answer, but may in others. `null` means unknown, unless the table says otherwise."
    yield "Moments are ISO 8601 in UTC, amounts US dollars, and shares and probabilities between 0 and 1.\n"
    same = " and ".join(f"`{name}` prints what `{other}` prints" for name, other in SAME.items())
    yield f"`schema` prints the JSON Schema of the job file, `ui` the `address` of its page, and {same}. The last"
    yield "tables are of commands that need an account; tests compare them with what these print on simulated clouds.\n"
    with tempfile.TemporaryDirectory() as home:
        for name, text in files(time.time()).items():
            Path(home, name).write_text(text, encoding="utf-8")
        _put_crontab(home)
        for command, writer in JSON_COMMANDS.items():
            if command.startswith("exec "):
                _begin_nap(home)
            printed = _run(command, home)
            if command.startswith("lab parallel p"):  # the next command reads it
                Path(home, f"{command.split()[2]}.json").write_text(
                    printed.stdout, encoding="utf-8"
                )
            yield from _table(command, writer, _parsed(printed.stdout, command, printed.stderr))
    for recorded in json.loads(RECORDED.read_text(encoding="utf-8")).values():
        yield from _table(recorded["command"], recorded["writer"], recorded["answer"])


def _table(command: str, writer: str, answer: Any) -> Iterator[str]:
    if unknown := without_meaning(writer, answer):
        raise SystemExit(
            f"spotctl {command} --json: {writer} has no meaning for {', '.join(unknown)}"
        )
    yield f"\n## spotctl {_heading(command)}\n\n`spotctl {command} --json`\n"
    yield "| key | type | meaning |\n| --- | --- | --- |"
    known, types = meanings(writer), dict[str, set[str]]()
    for key, found in types_of(answer).items():
        types.setdefault(documented(key, known) or key, set()).update(found)
    yield from (
        f"| `{key}` | {_type(key, types)} | {_sentence(about)} |" for key, about in known.items()
    )


@cache
def writers() -> dict[str, str]:
    """By command, what writes its JSON."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")).items()
    return {_heading(command): writer for command, writer in JSON_COMMANDS.items()} | {
        name: one["writer"] for name, one in recorded
    }


def without_meaning(writer: str, answer: Any) -> list[str]:
    """The keys of an answer that what writes it does not explain."""
    known = meanings(writer)
    return [
        key for key in types_of(answer) if not key.endswith("[]") and documented(key, known) is None
    ]


def _type(key: str, types: Mapping[str, set[str]]) -> str:
    """`text or null`, `list of numbers`; empty if the answer does not have the key."""
    elements = _type(f"{key}[]", types) if "list" in types.get(key, ()) else ""
    several = re.sub(r"(object|number|integer|list)\b", r"\1s", elements)
    names = {"list": f"list of {several}" if several else "list"}
    return " or ".join(names.get(one, one) for one in sorted(types.get(key, ())))


def _sentence(text: str) -> str:
    return _cell(text[0].upper() + text[1:].removesuffix("."))


def without_table() -> list[str]:
    """Commands that no table and no sentence describes."""
    described = {"schema", "ui", *SAME, *writers()}
    return [name for name in _names_of_commands() if name not in described]


def _run(command: str, home: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with `--json` in a clone with this home."""
    before, dashes, after = command.partition(" -- ")
    here = {*files(0), *WRITTEN}
    words = [str(Path(home, word)) if word in here else word for word in shlex.split(before)]
    return subprocess.run(
        [sys.executable, "-m", "spotctl", *words, "--json", *dashes.split(), *after.split()],
        cwd=ROOT,
        env=_environment(home),
        capture_output=True,
        text=True,
        check=False,
    )


def _put_crontab(home: str) -> None:
    program = Path(home, "bin", "crontab")
    program.parent.mkdir()
    program.write_text(CRONTAB, encoding="utf-8")
    program.chmod(0o755)


def _begin_nap(home: str) -> None:
    """Launches the job that sleeps, and waits until its machine runs commands. `stop napping` ends
    the launch.
    """
    with Path(home, "launch.txt").open("wb") as said:
        launched = subprocess.Popen(
            [sys.executable, "-m", "spotctl", "launch", str(Path(home, "napping.yaml")), "--yes"],
            env=_environment(home),
            stdout=said,
            stderr=said,
        )
    while _run("exec napping -- true", home).returncode:
        if launched.poll() is not None:
            raise SystemExit(
                f"spotctl launch napping.yaml ended: "
                f"{Path(home, 'launch.txt').read_text(encoding='utf-8')}"
            )
        time.sleep(1)


def _environment(home: str) -> dict[str, str]:
    path = f"{Path(home, 'bin')}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "SPOTCTL_HOME": home, "PYTHONPATH": str(ROOT), "PATH": path}


def _names_of_commands() -> Iterator[str]:
    """`prices fetch` for the command of that name, of all commands."""
    yield from (
        line.removeprefix("\n## spotctl ").partition("\n")[0]
        for line in commands()
        if line.startswith("\n## spotctl ")
    )


def _heading(command: str) -> str:
    """The command's words before its arguments, with the options and files that make it answer
    something else.
    """
    words, group, name = command.split(), _surface(), []
    while words and words[0] in getattr(group, "commands", {}):
        group = group.commands[words[0]]
        name.append(words.pop(0))
    last = (word.rpartition("/")[2] for word in words)
    return " ".join(name + [word for word in last if word in OTHER_ANSWERS])


def metrics() -> Iterator[str]:
    """A table of what `launch --metrics` publishes."""
    yield "# Metrics\n\n`spotctl launch JOB --metrics FILE|PORT` publishes a run in Prometheus' text format: in a file,"
    yield "for the textfile collector of the node exporter, or on this port of 127.0.0.1. So do `spotctl resume`, and"
    yield "`spotctl nightly install FILE --metrics ...` for every night. A new file is readable by you alone; if the"
    yield "node exporter runs as another user, `chmod 644 FILE` once, which lasts. The port answers requests with the"
    yield "token in `metrics-token` of spotctl's home; in Prometheus, `authorization: {credentials_file: FILE}` sends a"
    yield "copy of it. A killed runner leaves its last figures in the"
    yield "file, so watch `spotctl_updated_timestamp_seconds`:"
    yield "`time() - spotctl_updated_timestamp_seconds > 300 and on(instance) spotctl_running == 1`.\n"
    yield "| metric | type | meaning |\n| --- | --- | --- |"
    for of, declared in metrics_text.METRICS.items():
        # The metrics of replayed runs mean the same as those of billed ones.
        for one in declared if of != "replayed run" else ():
            yield f"| `{one.name}` | {one.kind} | {_cell(one.meaning)} |"


def _parsed(text: str, command: str, complaint: str) -> Any:
    """One JSON value, or the last of several lines that are values each."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        lines = text.strip().splitlines()
        if not lines:
            raise SystemExit(f"spotctl {command} --json prints nothing: {complaint}") from None
        return json.loads(lines[-1])


def types_of(answer: Any) -> dict[str, set[str]]:
    """The keys of a JSON value and of all values in it, with their types."""
    found: dict[str, set[str]] = {}
    _types(answer, "", found)
    return found


def _types(value: Any, key: str, found: dict[str, set[str]]) -> None:
    """The types of all values below a key; `[]` stands for the elements of a list."""
    names = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "text",
        type(None): "null",
        list: "list",
        dict: "object",
    }
    if key:
        found.setdefault(key, set()).add(names[type(value)])
    if isinstance(value, dict):
        for name, inner in value.items():
            _types(inner, f"{key}.{name}" if key else name, found)
    if isinstance(value, list):
        for inner in value:
            _types(inner, f"{key}[]", found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
