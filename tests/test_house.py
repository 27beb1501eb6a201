"""The counts of the packages stay within tests/house_limits.toml, and are counted as they are
meant.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.counts import PLACES, Counts, above, all_counts, below, limits, lowered
from bench.surface import surface_of
from bench.walk import properties, walk_of

ROOT = Path(__file__).parents[1]


def test_every_package_has_as_many_things_as_its_limit() -> None:
    """A limit is neither below nor above the figure of the tree: `python -m bench.house --write`
    lowers it.
    """
    counted, known = all_counts(ROOT), limits(ROOT)
    assert counted.keys() == known.keys() == PLACES.keys()
    assert {
        name: lines for name, counts in counted.items() if (lines := above(counts, known[name]))
    } == {}
    assert {
        name: lines for name, counts in counted.items() if (lines := below(counts, known[name]))
    } == {}


def tree(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


VALUES = """
from dataclasses import dataclass
import attrs
from msgspec import Struct
from typing import Generic, NamedTuple, TypedDict

@dataclass(frozen=True)
class A:
    x: int

@attrs.define
class B: ...

@attrs.frozen(slots=True)
class C: ...

class D(NamedTuple): ...
class E(TypedDict, total=False): ...
class F(Struct, frozen=True): ...
class Plain: ...
class Error(Exception): ...
"""
FUNCTIONS = '''
class Base(Kept): ...
class Far(Base[int]): ...

def one() -> None:
    """Its text counts for nothing."""
    call(
        1,
        2,
    )
    if x:
        y()

async def two() -> None:
    def inner() -> None:
        pass

class K:
    def method(self) -> None: ...
    x = lambda: 3
'''


def test_counts_of_a_small_tree(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        spotctl__values=VALUES,
        spotctl__planning__functions=FUNCTIONS,
        spotctl__planning__empty="",
        bidbrain__kept="class Kept(BaseModel): ...\n",
    )
    counts = all_counts(root)
    assert counts["spotctl"] == Counts(3, 4, 8, 2, 1.429)
    assert counts["planning"] == Counts(2, 4, 2, 2, 1.429)
    assert counts["bidbrain"] == Counts(1, 0, 1, 1, 0.0)
    assert counts.keys() == {"spotctl", "bidbrain", "planning"}


def test_limits_are_lowered_and_not_raised_unasked(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        spotctl__a="def f() -> None:\n    call(\n        1\n    )\n",
        spotctl__b="",
        tests__x="",
    )
    assert lowered(root) == []
    first = limits(root)["spotctl"]
    assert first == all_counts(root)["spotctl"] == Counts(2, 1, 0, 2, 3.0)
    (root / "spotctl" / "b.py").write_text("def g() -> None:\n    call()\n")
    worse = all_counts(root)["spotctl"]
    assert above(worse, first) == [
        "functions is 2, the limit 1",
        "lines_per_statement is 2.0, the limit 3.0",
    ]
    assert len(lowered(root)) == 2
    assert limits(root)["spotctl"] == first
    assert lowered(root, may_raise=True) == []
    assert limits(root)["spotctl"] == worse
    (root / "spotctl" / "b.py").unlink()
    better = all_counts(root)["spotctl"]
    assert (above(better, worse), len(below(better, worse))) == ([], 4)
    assert lowered(root) == []
    assert limits(root)["spotctl"] == better


@pytest.mark.parametrize(
    "key", [key for key in asdict(Counts(0, 0, 0, 0, 0)) if key != "lines_per_statement"]
)
def test_each_count_has_a_limit(key: str) -> None:
    limit = Counts(5, 5, 5, 5, 5.0)
    assert above(replace(limit, **{key: 6}), limit) == [f"{key} is 6, the limit 5"]
    assert above(replace(limit, **{key: 4}), limit) == []


MAIN = """
import sys
from small.planning import first

def main(words: list[str]) -> None:
    first.begin(words)
    sys.exit(0)
"""
FIRST = """
from functools import cached_property

from small.planning import second

class Plan:
    @property
    def cost(self) -> int:
        return second.cost()

    @cached_property
    def time(self) -> int:
        return 1

def begin(words: list[str]) -> None:
    second.read([(lambda x: x)(word) for word in words])
    end(Plan())

def end(plan: Plan) -> int:
    again()
    return plan.cost + plan.time

def again() -> None: ...
"""
SECOND = """
def read(words: list[str]) -> None:
    import small.planning.late

def cost() -> int:
    read([])
    return 1
"""
LATE = "class Late:\n    x = 1\n"


def test_the_walk_of_a_small_command(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        small____main__=MAIN,
        small__planning__first=FIRST,
        small__planning__second=SECOND,
        small__planning__late=LATE,
    )
    (root / "small" / "__main__.py").write_text(MAIN)
    walk = walk_of(root, "small", ["a"]).within("planning")
    names = [name for _, name, _ in walk.steps]
    assert names == ["begin", "read", "Late", "end", "again", "Plan.cost", "cost", "Plan.time"]
    assert (walk.files, walk.returns) == (3, 3)
    assert [name for _, name, _ in walk.strict().steps] == ["begin", "read", "end", "again", "cost"]
    assert (walk.strict().files, walk.strict().returns) == (2, 2)
    assert properties(str(root / "small" / "planning" / "first.py")) == {7, 11}


def test_the_walk_of_a_command_that_fails_says_why(tmp_path: Path) -> None:
    root = tree(tmp_path, small__x="")
    (root / "small" / "__main__.py").write_text(
        "def main(words: list[str]) -> None:\n    raise SystemExit('no')\n"
    )
    with pytest.raises(SystemExit, match="ended with 1: no"):
        walk_of(root, "small", [])


def test_commands_and_options_are_counted_from_the_command_line() -> None:
    seen = surface_of(ROOT)
    assert 0 < seen.commands < seen.options
    assert seen.commands <= COMMANDS
    assert seen.options <= OPTIONS


COMMANDS, OPTIONS = 50, 282
"""The most that users see."""
