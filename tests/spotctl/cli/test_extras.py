"""Packages that only some commands need: plans work without them, and an error says in a line what
to install.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from spotctl.home.errors import EXTRAS, missing_extra, requiring_extras

ROOT = Path(__file__).parents[3]
_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("matplotlib", "duckdb")))
from spotctl.cli.app import main
main(sys.argv[1:])
"""


def without_extras(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ}
    )


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (
            ("plan", "examples/quickstart.yaml", "--plot", "plan.svg"),
            "this needs matplotlib: pip install 'spotctl[plots]'",
        ),
        (
            ("lab", "backtest", "run", "examples/backtest_local.yaml", "--out", "nowhere"),
            "this needs matplotlib: pip install 'spotctl[plots]'",
        ),
        (("lab", "prices", "sql", "select 1"), "this needs duckdb: pip install 'spotctl[sql]'"),
    ],
    ids=["plot", "plots", "sql"],
)
def test_what_needs_an_extra_says_what_to_install(words: tuple[str, ...], cure: str) -> None:
    refused = without_extras(*words)
    assert refused.returncode in (1, 2)
    assert cure in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    "words",
    [("plan", "examples/quickstart.yaml", "--explain"), ("doctor",)],
    ids=["plan", "doctor"],
)
def test_what_needs_no_extra_works_without_any(words: tuple[str, ...]) -> None:
    ended = without_extras(*words)
    assert ended.returncode == 0, ended.stderr


def test_every_extra_that_an_error_names_installs_its_module() -> None:
    extras = project()["optional-dependencies"]
    for module, extra in EXTRAS.items():
        assert any(requirement.startswith(module) for requirement in extras[extra])
        assert any(requirement.startswith(module) for requirement in extras["test"])
        assert not any(requirement.startswith(module) for requirement in project()["dependencies"])


def test_another_missing_module_is_an_internal_error() -> None:
    missing = ModuleNotFoundError("No module named 'nonsense'", name="nonsense.part")
    assert missing_extra(missing) is None
    with pytest.raises(ModuleNotFoundError, match="nonsense"), requiring_extras():
        raise missing
