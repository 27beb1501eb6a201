"""All commands that are compared, collected from the commit that they are compared with."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.golden.bad_jobs import refused_jobs
from tests.golden.harvest import called_by_tests
from tests.golden.plans import plan_scenarios
from tests.golden.reading import home_scenarios
from tests.golden.scenario import Scenario, Step
from tests.golden.trees import Tree

NOW = "2026-06-11T00:00:00Z"
MEASURED = ("parallel profile", "parallel plan profile.json", "parallel simulate plan.json")
"""Commands that measure this computer, or read what one of these has written."""
REAL = (
    "launch",
    "resume",
    "exec",
    "ssh",
    "stop",
    "down",
    "top",
    "logs",
    "nightly run",
    "report",
    "status",
    "gc",
)
"""Commands of the reference whose figures real processes decide, or that begin some."""
UNORDERED = ("prices sql 'select market,",)
"""Those that print some of the rows that a query finds, in no order."""

_SURFACE = """
import importlib.metadata, json, sys
from typer.main import get_command
(script,) = importlib.metadata.entry_points(group="console_scripts", name="spotctl")
def walk(command, words):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, [*words, name])
print(json.dumps(list(walk(get_command(sys.modules[script.load().__module__].app), []))))
"""


def scenarios_of(base: Tree) -> list[Scenario]:
    """The scenarios for a comparison with this tree."""
    return [
        *help_scenarios(base),
        *refused_jobs(base.checkout),
        *plan_scenarios(),
        *reference_scenarios(base),
        *called_by_tests(base.checkout),
        *home_scenarios(),
        *fault_scenarios(),
    ]


def help_scenarios(base: Tree) -> Iterator[Scenario]:
    """The help of each command, visible or not, and the answer to an option that it has not."""
    python = base.environment / "bin" / "python"
    found = subprocess.run(
        [python, "-P", "-c", _SURFACE], check=True, capture_output=True, text=True
    )
    commands: list[list[str]] = ast.literal_eval(found.stdout)
    for first in range(0, len(commands), 20):
        steps = [
            Step((*words, more))
            for words in commands[first : first + 20]
            for more in ("--help", "--no-such-option")
        ]
        yield Scenario("help", steps, together=True)
    others = (("--version",), ("no-such-command",), ("schema",))
    yield Scenario("help", [Step(words) for words in others], together=True)
    for number, words in enumerate(commands):
        if number % 8 == 0:
            yield Scenario(
                "help",
                [Step((*words, "--help"), name=f"{shlex.join(words)} (a process)", process=True)],
            )


def reference_scenarios(base: Tree) -> Iterator[Scenario]:
    """The commands of docs/json_commands.py, which the reference lists with what they print."""
    defined = runpy.run_path(str(base.checkout / "docs" / "json_commands.py"))
    commands = [
        command for command in defined["JSON_COMMANDS"] if not _begins(command, (*REAL, *UNORDERED))
    ]
    yield Scenario(
        "reference",
        list(_json_steps(commands)),
        files=defined["files"](1_781_136_000.0),
        folders=("examples",),
        programs={"crontab": defined["CRONTAB"]},
        now=NOW,
    )
    texts = [shlex.split(command) for command in commands if not command.startswith("init ")]
    yield Scenario(
        "reference as texts",
        [Step(words, exact=not _begins(shlex.join(words), MEASURED)) for words in texts],
        files=defined["files"](1_781_136_000.0),
        folders=("examples",),
        programs={"crontab": defined["CRONTAB"]},
        now=NOW,
    )


def fault_scenarios() -> Iterator[Scenario]:
    """Trainings and pipelines in virtual time, with random faults, by the tests of each tree."""
    code = Path(__file__).with_name("fault_schedules.py").read_text(encoding="utf-8")
    for kind, count in {"trainings": 200, "pipelines": 100}.items():
        for first in range(0, count, 50):
            words = ("-c", code, kind, str(first), str(first + 50))
            step = Step(words, name=f"{kind} {first} to {first + 49}", script=True)
            yield Scenario("faults", [step])


def _json_steps(commands: Iterable[str]) -> Iterator[Step]:
    for command in commands:
        words = shlex.split(command)
        kept = (
            f"{words[2]}.json"
            if words[:2] == ["lab", "parallel"] and words[2] in ("profile", "plan")
            else ""
        )
        yield Step((*words, "--json"), exact=not _begins(command, MEASURED), keep_output=kept)


def _begins(command: str, beginnings: Iterable[str]) -> bool:
    return any(
        f"{re.sub('^lab ', '', command)} ".startswith(f"{beginning} ") for beginning in beginnings
    )
