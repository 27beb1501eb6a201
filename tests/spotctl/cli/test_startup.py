from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spotctl.log.test_loss import ended
from tests.spotctl.show.costs.made import write_log

SDKS = ("boto3", "botocore", "google.cloud", "google.auth", "azure")
HEAVY = (*SDKS, "httpx", "pandas", "scipy", "duckdb", "pyarrow", "matplotlib", "highspy")
NOT_FOR_HELP = (
    *HEAVY,
    "numpy",
    "sqlite3",
    "pydantic",
    "yaml",
    "spotctl.agent",
    "spotctl.clouds",
    "spotctl.planning",
    "agileml",
)

# Prints the commands whose help was shown, and raises after the first one that imported a forbidden
# module.
SHOW_EVERY_HELP = """
import sys
import typer
from spotctl.cli.app import app, main

def commands(command, words):
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, [*words, name])

for words in commands(typer.main.get_command(app), []):
    try:
        main([*words, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, ended.code
    heavy = [name for name in FORBIDDEN if name in sys.modules]
    assert not heavy, (words, heavy)
    print("shown:", *words)
"""

RUN = """
import sys
from spotctl.cli.app import main
try:
    main(WORDS)
except SystemExit as ended:
    print("exit code:", ended.code)
heavy = [name for name in FORBIDDEN if name in sys.modules]
assert not heavy, heavy
"""


def ran(script: str, **values: object) -> str:
    """What a script prints in a process of its own."""
    text = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + script
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_help_page_imports_what_only_its_command_needs() -> None:
    lines = ran(SHOW_EVERY_HELP, FORBIDDEN=NOT_FOR_HELP).splitlines()
    shown = {line.removeprefix("shown: ") for line in lines if line.startswith("shown: ")}
    assert {"status", "prices fetch", "lab backtest run", "nightly install", "report cost"} <= shown


def test_the_package_loads_its_functions_on_first_use() -> None:
    script = (
        "import sys, spotctl; print([name for name in sys.modules if name.startswith('spotctl.')])"
    )
    assert ran(script) == "[]\n"


def test_version_imports_what_help_imports() -> None:
    assert "spotctl" in ran(RUN, WORDS=["--version"], FORBIDDEN=NOT_FOR_HELP)


def test_status_and_a_rejected_job_file_import_no_sdk_and_no_numerics(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: x\nkind: command\nhours: banana\n")
    status = ["--home", str(tmp_path), "status"]
    assert "exit code: 0" in ran(
        RUN, WORDS=status, FORBIDDEN=(*HEAVY, "agileml.engines", "agileml.roles")
    )
    words = ["--home", str(tmp_path), "launch", str(tmp_path / "job.yaml")]
    assert "exit code: 2" in ran(RUN, WORDS=words, FORBIDDEN=(*HEAVY, "numpy", "sqlite3"))


def test_a_plan_shows_its_progress_before_it_imports_what_it_plans_with() -> None:
    ran(
        "import sys, spotctl.cli.progress\n"
        "assert not [name for name in FORBIDDEN if name in sys.modules]",
        FORBIDDEN=(*HEAVY, "numpy", "pricing_data", "spotctl.planning"),
    )


def test_a_plan_imports_neither_what_launches_start_nor_what_solves(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: x\nrun: 'true'\nhours: 1h\nresources: {clouds: [local]}\n")
    words = ["--home", str(tmp_path), "plan", str(job)]
    not_for_plans = ("agileml.job", "agileml.roles", "scipy.optimize", "spotctl.run.work", *SDKS)
    assert "exit code: 0" in ran(RUN, WORDS=words, FORBIDDEN=not_for_plans)


NOT_FOR_ENDED_RUNS = (
    *(*HEAVY, "numpy", "yaml", "bidbrain.billing", "spotctl.log.events", "spotctl.log.state"),
    *("spotctl.files.job.reader", "spotctl.clouds.provider", "spotctl.planning", "agileml.core"),
    *("agileml.errors", "agileml.transport"),
)


@pytest.mark.parametrize("command", ["status", "report cost"])
def test_of_ended_runs_status_and_report_import_what_prints_their_kept_answers(
    tmp_path: Path, command: str
) -> None:
    write_log([ended("train-00000a", "train"), ended("tune-00000b", "tune")], tmp_path)
    words = ["--home", str(tmp_path), *command.split()]
    # The first of a day checks all rows; it may import more.
    ran(RUN, WORDS=words, FORBIDDEN=())
    shown = ran(RUN, WORDS=words, FORBIDDEN=NOT_FOR_ENDED_RUNS)
    assert "$2.40" in shown
    assert "exit code: 0" in shown


@pytest.mark.parametrize(
    "module",
    ["spotctl.clouds.aws.prices", "spotctl.clouds.gcp.prices", "spotctl.clouds.azure.prices"],
)
def test_a_source_imports_its_sdk_on_first_use(module: str) -> None:
    ran(
        f"import sys, {module}; assert not [name for name in FORBIDDEN if name in sys.modules]",
        FORBIDDEN=HEAVY,
    )
