"""Parts of the tests: `make test` runs a short part within minutes, `make long-tests` what takes
long, `make tool-tests` what tests tools of the project only, and `make all-tests` all.

`long_tests.txt` lists the tests whose time `make check` does not spend: few tests take most of the
time. `tool_tests.txt` lists the tests that check tests, measurements and simulated clouds. Where
many tests are alike, a run may take a sample, a different one each time; and of a part that takes
long, a run may take the tests of some files only.
"""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

VARIABLE, PART = "SPOTCTL_TEST_SAMPLES", "SPOTCTL_TEST_PART"
ONE_FILE_IN = "SPOTCTL_TEST_ONE_FILE_IN"
LONG_TESTS, TOOL_TESTS = (
    Path(__file__).with_name(f"{part}_tests.txt") for part in ("long", "tool")
)

SHORT, LONG, TOOL = "short", "long", "tool"
LONG_RUN = pytest.mark.sampled(4, of="runs of minutes on this computer")
"""Tests of whole runs of real processes, each of half a minute to two."""

LOCAL_FAULT = pytest.mark.sampled(8, of="faults of trainings on this computer")
"""Tests that kill, stop or interrupt processes of a training. The simulation tests the same faults
by the hundred."""

LAUNCH = pytest.mark.sampled(9, of="launches on this computer")
"""Tests that launch jobs as processes and wait for their ends, of five to twenty seconds of
processor time each. Runs in virtual time test the same decisions in milliseconds."""

WINDOW = pytest.mark.sampled(4, of="windows of runs")
"""Tests of terminals that show a run which another process carries out."""

NIGHT = pytest.mark.sampled(4, of="nights on this computer")
"""Tests of nights that cron, a timer or a command starts as processes."""

PIPELINE_PROCESSES = pytest.mark.sampled(5, of="pipelines of processes")
"""Tests of pipelines whose nodes are processes. The simulation tests the same pipelines in one
process."""

TOY_CLOUD = pytest.mark.sampled(10, of="commands with the cloud of another package")
"""Tests that run a command or two with the toy cloud, each in processes of its own."""


def sampled(
    items: Iterable[pytest.Item], seed: object
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests to run and those to leave out, in order: of each marked function or class as many
    as its marker says, and of what is left of a named group as many as that group's marker says.

    All processes of a run draw the same tests, because they have the same seed.
    """
    items, left_out = list(items), set[pytest.Item]()
    for group_of in (_by_place, _by_name):
        groups = dict[str, list[pytest.Item]]()
        most = dict[str, int]()
        for item in items:
            if item not in left_out and (drawn := group_of(item)):
                name, most[name] = drawn
                groups.setdefault(name, []).append(item)
        for name, group in groups.items():
            alike = sorted(group, key=lambda item: item.nodeid)
            left_out.update(
                random.Random(f"{seed} {name}").sample(alike, max(len(alike) - most[name], 0))
            )
    return [item for item in items if item not in left_out], [
        item for item in items if item in left_out
    ]


def _by_place(item: pytest.Item) -> tuple[str, int] | None:
    """The class that is marked as a whole, or the function with all its parameters, and how many of
    it run.
    """
    found = next((mark for mark in item.iter_markers("sampled") if not mark.kwargs), None)
    if found is None:
        return None
    parent = item.parent
    by_class = parent is not None and any(
        not mark.kwargs for mark in parent.iter_markers("sampled")
    )
    name = item.nodeid.partition("[")[0]
    return (name.rpartition("::")[0] if by_class else name), found.args[0]


def _by_name(item: pytest.Item) -> tuple[str, int] | None:
    """The group that a marker names, whatever file its tests are in, and how many of it run."""
    found = next((mark for mark in item.iter_markers("sampled") if mark.kwargs), None)
    return None if found is None else (found.kwargs["of"], found.args[0])


def wanted() -> bool:
    """Whether this run is of a sample."""
    return bool(os.environ.get(VARIABLE))


@cache
def listed(path: Path) -> frozenset[str]:
    """The tests that a file lists: files, functions with all their parameters, or single cases."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def is_among(nodeid: str, tests: frozenset[str]) -> bool:
    return not tests.isdisjoint((nodeid, nodeid.partition("[")[0], nodeid.partition("::")[0]))


def _part(nodeid: str) -> str:
    if is_among(nodeid, listed(TOOL_TESTS)):
        return TOOL
    return LONG if is_among(nodeid, listed(LONG_TESTS)) else SHORT


def part_of(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of the part that the environment names, and the others; without a part, all."""
    items, part = list(items), os.environ.get(PART)
    if not part:
        return items, []
    chosen = {item for item in items if _part(item.nodeid) == part}
    return [item for item in items if item in chosen], [
        item for item in items if item not in chosen
    ]


def is_elsewhere(file: str) -> bool:
    """Whether no test of a file is of the part that the environment names; of files with tests of
    both, none is.
    """
    part = os.environ.get(PART)
    if not part:
        return False
    if _part(file) != SHORT:
        return _part(file) != part
    lists = {LONG: LONG_TESTS, TOOL: TOOL_TESTS}
    return part in lists and not any(
        name.partition("::")[0] == file for name in listed(lists[part])
    )


def is_drawn(file: str, seed: object) -> bool:
    """Whether a file is among those that the environment asks for: one in so many."""
    many = int(os.environ.get(ONE_FILE_IN) or 1)
    return random.Random(f"{seed} {file}").randrange(many) == 0


def is_defined(name: str) -> bool:
    """Whether a file defines or imports every part of a test's name; suites give inherited tests a
    class.
    """
    file, *parts = name.split("::")
    path = Path(__file__).parents[1] / file
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return not parts or parts[0] in defined
