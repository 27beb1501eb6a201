"""Locks between processes, and files and folders that get their names in one step, stand on the
ground shelf alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")

SHELVES = {"agileml/runtime/ground.py", "pricing_data/atomic_write.py"}
"""Two, because AgileML stands alone, and prices are below it."""

NOT_YET = {
    "spotctl/clouds/local/clock.py",
    "spotctl/clouds/local/folders.py",
    "spotctl/clouds/local/processes.py",
    "spotctl/clouds/remote/connections.py",
    "spotctl/clouds/remote/home.py",
    "spotctl/clouds/remote/job_folder.py",
    "spotctl/clouds/vast/offers.py",
}
"""Modules that do it by hand still: to be emptied."""

_OF_MODULES = {
    "fcntl": {"flock", "lockf"},
    "os": {"lockf", "rename", "renames", "replace"},
    "shutil": {"move"},
}
_OF_PATHS = {"replace", "rename"}
_ANY = re.compile(r"flock|lockf|rename|replace|move")
"""One of them is in each such call: many modules have none, and need not be parsed."""


def by_hand(source: str) -> Iterator[str]:
    """The calls of a module that lock, or give a file another name: `line: call`."""
    if not _ANY.search(source):
        return
    nodes = [*ast.walk(ast.parse(source))]
    known = dict(_full_names(nodes))
    for node in nodes:
        if isinstance(node, ast.Call) and _is_of_path(node):
            yield f"{node.lineno}: {ast.unparse(node.func)}"
        elif isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            module, _, name = f"{known.get(first, first)}.{rest}".rstrip(".").rpartition(".")
            if name in _OF_MODULES.get(module, ()) or (
                module.endswith("Path") and name in _OF_PATHS
            ):
                yield f"{node.lineno}: {module}.{name}"


def _full_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """What the names that a module imports stand for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((name.asname or name.name, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (name.asname or name.name, f"{node.module}.{name.name}") for name in node.names
            )


def _is_of_path(call: ast.Call) -> bool:
    """Whether a method is called as a path's: of a text it has two arguments, and those of a time
    or of a row of a table have other names."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _OF_PATHS:
        return False
    names = {keyword.arg for keyword in call.keywords}
    return len(call.args) + len(names) == 1 and names <= {"target"}


def test_only_the_shelf_locks_and_renames() -> None:
    found = dict[str, list[str]]()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text("utf-8")
            if calls := list(by_hand(source)):
                found[path.relative_to(ROOT).as_posix()] = calls
    strangers = {path: calls for path, calls in found.items() if path not in SHELVES | NOT_YET}
    assert not strangers, f"use locked, replaced, refilled or move of the ground shelf: {strangers}"
    assert found.keys() >= SHELVES
    assert found.keys() >= NOT_YET, f"take these out of NOT_YET: {sorted(NOT_YET - found.keys())}"


@pytest.mark.parametrize(
    "line",
    [
        "import fcntl\nfcntl.flock(file, fcntl.LOCK_EX)",
        "import fcntl as f\nf.flock(file, 2)",
        "from fcntl import flock\nflock(file, 2)",
        "from os import replace as put\nput(a, b)",
        "import os\nos.rename(a, b)",
        "import os\nretry(os.replace, a, b)",
        "import shutil\nshutil.move(a, b)",
        "import pathlib\npathlib.Path.rename(a, b)",
        "new.replace(path)",
        "(folder / 'x').rename(path)",
        "new.replace(target=path)",
    ],
)
def test_each_way_is_found(line: str) -> None:
    assert list(by_hand(line))


@pytest.mark.parametrize(
    "line",
    [
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=zone)",
        "import dataclasses\ndataclasses.replace(value, name=1)",
        "from dataclasses import replace\nreplace(value, name=1)",
        "import fcntl\nfcntl.ioctl(line, 1)",
    ],
)
def test_what_only_looks_like_it_is_not(line: str) -> None:
    assert not list(by_hand(line))
