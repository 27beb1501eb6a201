"""The commands that the tests call: those whose words a reader of the test can see, and that only
read or refuse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.golden.homes import JOBS
from tests.golden.plans import price_files
from tests.golden.reading import BILL
from tests.golden.scenario import Scenario, Step

READ = (
    *(
        "plan",
        "status",
        "report",
        "log",
        "logs",
        "gc",
        "schema",
        "init",
        "prices",
        "backtest",
        "beta",
        "gavel",
    ),
    *(
        "parallel",
        "lab",
        "nightly",
        "doctor",
        "top",
        "admit",
        "train",
        "resume",
        "stop",
        "down",
        "exec",
        "ssh",
    ),
)
"""First words. Others begin processes or ask clouds."""
NEVER = ("fetch", "--watch", "--follow", "-f", "watch", "systemd", "bot", "ray", "local", "--open")
"""Words of commands that wait, need a network, or start processes."""

SCHEDULER = """\
#!/bin/sh
case $1 in
-l) [ -f "$0.table" ] && cat "$0.table" || { echo "no crontab for me" >&2; exit 1; };;
-r) rm "$0.table";;
-) cat > "$0.table";;
esac
"""
NONE = "#!/bin/sh\nexit 1\n"


def called_by_tests(checkout: Path) -> Iterator[Scenario]:
    """One scenario for each command, with a home that has prices and files of the usual names."""
    files = {**JOBS, **price_files(), "bill.csv": BILL, "job.yaml": JOBS["small.yaml"]}
    programs = {"crontab": SCHEDULER, "systemctl": NONE, "loginctl": NONE}
    commands = sorted(set(_commands(checkout)))
    for first in range(0, len(commands), 25):
        steps = [Step(words, seconds=300.0) for words in commands[first : first + 25]]
        yield Scenario(
            "tests",
            steps,
            files=files,
            home="runs",
            now="",
            programs=programs,
            folders=("examples",),
        )


def _commands(checkout: Path) -> Iterator[tuple[str, ...]]:
    for path in sorted((checkout / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = dict(_constants(tree))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "spotctl"
            ):
                words = [_word(word, known) for word in node.args]
                words = [
                    "out.csv" if last == "--out" else word
                    for last, word in zip(["", *words], words, strict=False)
                ]
                if words and "" not in words and words[0] in READ and not set(words) & set(NEVER):
                    yield tuple(words)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                yield name, text


def _word(word: ast.expr, known: dict[str, str]) -> str:
    """A word as it stands there; a file is one of the usual names; empty for what cannot be
    seen."""
    match word:
        case ast.Constant(value=str(text)) if text.isprintable():
            return text
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.BinOp(right=ast.Constant(value=str(name))):
            return name
        case ast.Name(id="job" | "file" | "path" | "job_file"):
            return "job.yaml"
    return ""
