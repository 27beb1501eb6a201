"""The sample of tests that `make test` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import (
    LONG,
    LONG_TESTS,
    ONE_FILE_IN,
    PART,
    SHORT,
    TOOL,
    TOOL_TESTS,
    VARIABLE,
    is_among,
    is_defined,
    is_drawn,
    listed,
    sampled,
)

FILE, FUNCTION = (
    "tests/spotctl/cli/lab/test_train_errors.py",
    "test_a_trainer_that_breaks_the_contract",
)
"""A function that is marked as `sampled(2)`, and its file."""


ROOT = LONG_TESTS.parents[1]


def collected(seed: int, variable: str, part: str = "", file: str = FILE) -> set[str]:
    words = (
        "-m",
        "pytest",
        "-n",
        "0",
        "--collect-only",
        "-q",
        f"--randomly-seed={seed}",
        "-p",
        "no:cacheprovider",
    )
    done = subprocess.run(
        [sys.executable, *words, file],
        env={**os.environ, VARIABLE: variable, PART: part, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    # pytest exits with 5 if a part has no test of the file.
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_a_sample_leaves_out_marked_tests_only_and_others_for_each_seed() -> None:
    whole = collected(1, variable="")
    alike = {test for test in whole if FUNCTION in test}
    assert len(alike) == 4
    samples = [collected(seed, variable="1") for seed in (1, 1, 2, 3, 4)]
    assert samples[0] == samples[1]
    assert len({frozenset(sample) for sample in samples}) > 1
    for sample in samples:
        assert whole - sample <= alike
        assert len(alike & sample) == 2


def test_of_a_named_group_a_sample_runs_whatever_its_files(request: pytest.FixtureRequest) -> None:
    def item(file: str, *marks: pytest.MarkDecorator) -> pytest.Item:
        made = pytest.Function.from_parent(request.session, name=file, callobj=item)
        for mark in marks:
            made.add_marker(mark)
        return made

    alike = [item(f"{letter}.py", pytest.mark.sampled(2, of="alike")) for letter in "abcde"]
    items = [item("alone.py"), *alike, item("another.py", pytest.mark.sampled(2, of="others"))]
    drawn = [sampled(items, seed)[0] for seed in range(5)]
    assert drawn[0] == sampled(items, 0)[0]
    assert len({frozenset(run) for run in drawn}) > 1
    for run in drawn:
        assert len(set(run) & set(alike)) == 2
        assert set(items) - set(alike) <= set(run)


def test_the_parts_are_all_tests_each_once() -> None:
    file = min(name.partition("::")[0] for name in listed(LONG_TESTS) if "::" in name)
    whole, short, long, tool = (collected(1, "", part, file) for part in ("", SHORT, LONG, TOOL))
    assert long
    assert short | long == whole
    assert not short & long
    assert not tool


def test_a_file_of_tools_is_in_their_part_alone() -> None:
    file = "tests/bench/test_history.py"
    assert file in listed(TOOL_TESTS)
    whole, short, long, tool = (collected(1, "", part, file) for part in ("", SHORT, LONG, TOOL))
    assert tool == whole
    assert tool
    assert not short | long


@pytest.mark.parametrize("path", [LONG_TESTS, TOOL_TESTS], ids=lambda path: path.stem)
def test_every_listed_test_exists(path: Path) -> None:
    names = {name.partition("[")[0] for name in listed(path)}
    missing = [name for name in sorted(names) if not is_defined(name)]
    assert not missing, f"{path.name}: {', '.join(missing)}"


def test_no_test_is_listed_twice() -> None:
    assert not listed(LONG_TESTS) & listed(TOOL_TESTS)


def test_a_case_all_cases_of_a_function_and_a_file_can_be_listed() -> None:
    tests = frozenset({"tests/a.py::test_one[2]", "tests/a.py::test_two", "tests/b.py"})
    nodes = ("test_one[2]", "test_one[3]", "test_two[4]", "test_three")
    assert [node for node in nodes if is_among(f"tests/a.py::{node}", tests)] == [
        "test_one[2]",
        "test_two[4]",
    ]
    assert all(is_among(f"tests/b.py::{node}", tests) for node in nodes)


def test_one_file_in_so_many_is_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"tests/test_{n}.py" for n in range(300)]
    monkeypatch.delenv(ONE_FILE_IN, raising=False)
    assert all(is_drawn(file, 1) for file in files)
    monkeypatch.setenv(ONE_FILE_IN, "3")
    drawn = {seed: {file for file in files if is_drawn(file, seed)} for seed in range(12)}
    assert all(60 <= len(some) <= 140 for some in drawn.values())
    assert set[str]().union(*drawn.values()) > drawn[0] != drawn[1]
    assert drawn[1] == {file for file in files if is_drawn(file, 1)}
