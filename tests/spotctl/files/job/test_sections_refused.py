"""A wrong job file is refused in one line, with its place and its cure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.files.job.reader import load, loads
from spotctl.home.errors import BadRequest
from tests.spotctl.files.refused_jobs import CASES, COMMAND, TRAINING


@pytest.mark.parametrize(("text", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_a_wrong_file_is_refused_in_one_line_with_its_place_and_cure(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(BadRequest) as refused:
        load(tmp_path / "job.yaml")
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'job.yaml'}:{message}")
    assert "\n" not in said
    assert "; " in said or "is not YAML" in said


def test_the_files_that_are_broken_are_whole_before() -> None:
    for text in (TRAINING, COMMAND):
        loads(text, Path("job.yaml"))


def test_further_mistakes_are_counted() -> None:
    with pytest.raises(BadRequest, match=r"^job.yaml:1: name: .* \(and 2 more\)$"):
        loads(
            TRAINING.replace("nightly", "N").replace("4..64", "64..4").replace("200", "0"),
            Path("job.yaml"),
        )


def test_an_error_never_shows_a_misplaced_secret() -> None:
    for written in (
        "HF_TOKEN=hunter2",
        "{HF_TOKEN: hunter2}",
        "[HF_TOKEN=hunter2]",
        "[{HF_TOKEN: hunter2}]",
        "[12345]",
    ):
        with pytest.raises(BadRequest, match="secrets") as refused:
            loads(f"{TRAINING}secrets: {written}\n", Path("job.yaml"))
        assert "hunter2" not in str(refused.value)
        assert "12345" not in str(refused.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(BadRequest, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: café".encode("latin-1"))
    with pytest.raises(BadRequest, match="is not UTF-8 text"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    with pytest.raises(BadRequest, match="is nested deeper than 50 levels"):
        load(tmp_path / "deep.yaml")


@pytest.mark.parametrize("command", [["plan"], ["launch", "--dry-run"]])
def test_a_refused_file_costs_no_heavy_import(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "job.yaml").write_text(TRAINING.replace("4..64", "64..4"))
    heavy = (
        *("numpy", "pandas", "scipy", "pyarrow", "duckdb", "matplotlib", "sqlite3"),
        *("agileml.trainer", "bidbrain.strategies.registry"),
    )
    script = f"""
import sys
from spotctl.cli.app import main
try:
    main({[*command, str(tmp_path / "job.yaml")]!r})
except SystemExit as ended:
    assert ended.code == 2, ended.code
assert not (found := [name for name in {heavy!r} if name in sys.modules]), found
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
