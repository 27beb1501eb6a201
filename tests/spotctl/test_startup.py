from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    *("boto3", "botocore", "google.cloud", "google.auth", "azure", "httpx", "textual", "sqlite3"),
    *("pandas", "scipy", "duckdb", "pyarrow", "numpy", "matplotlib"),
)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["prices", "--help"],
        ["prices", "fetch", "--help"],
        ["beta", "show", "--help"],
        ["backtest", "run", "--help"],
        ["gavel", "solve", "--help"],
        ["train", "--help"],
        ["plan", "--help"],
        ["init", "--help"],
        ["launch", "--help"],
        ["status", "--help"],
        ["top", "--help"],
        ["doctor", "--help"],
        ["exec", "--help"],
        ["nightly", "--help"],
        ["report", "cost", "--help"],
        ["--version"],
    ],
)
def test_the_help_path_imports_nothing_heavy(words: list[str]) -> None:
    script = f"""
import sys
from spotctl.cli.app import main
try:
    main({words!r})
except SystemExit as ended:
    assert ended.code == 0, ended.code
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "spotctl" in ran.stdout


@pytest.mark.parametrize(
    "module", ["pricing_data.sources.aws", "pricing_data.sources.gcp", "pricing_data.sources.azure"]
)
def test_a_source_imports_its_sdk_only_when_it_is_asked(module: str) -> None:
    heavy = ("boto3", "google.cloud", "azure.core", "httpx")
    script = f"import sys, {module}; assert not [name for name in {heavy!r} if name in sys.modules]"
    subprocess.run([sys.executable, "-c", script], check=True)
