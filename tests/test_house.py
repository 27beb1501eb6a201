"""The product stays within its house: counts that may not get worse, and a sum of callables that
only an issue's budget raises."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.counts import (
    FIXED,
    LIMITS,
    MORE_IS_BETTER,
    Counts,
    Figures,
    better,
    figures,
    limits,
    worse,
    write_limits,
)
from bench.support import Support, support_of
from bench.surface import surface_of
from bench.walk import walk_of

ROOT = Path(__file__).parents[1]

BASE = 9_000
"""The callables of the fourth house."""
BUDGETS: dict[str, int] = {}
"""What capabilities that came after it may add, by their names."""


@pytest.fixture(scope="module")
def counted() -> Figures:
    return figures(ROOT)


def test_callables_stay_within_the_sum_of_the_budgets(counted: Figures) -> None:
    assert counted.counts["product"].callables <= BASE + sum(BUDGETS.values())


def test_the_product_is_as_good_as_its_limits_and_no_better(counted: Figures) -> None:
    """`python -m bench.house --write` writes better figures down; worse ones it refuses."""
    product, known = counted.counts["product"], limits(ROOT).counts["product"]
    assert worse(product, known) == []
    assert better(product, known) == []


def test_rooms_have_the_callables_that_the_limits_give_them(counted: Figures) -> None:
    known = limits(ROOT)
    assert counted.callables == known.callables
    assert sum(known.callables.values()) == known.counts["product"].callables


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
    found = figures(root)
    assert found.counts["spotctl"] == Counts(3, 4, 5, 8, 0, 2, 1.43, 0.0)
    assert found.counts["bidbrain"] == Counts(1, 0, 0, 1, 0, 1, 0.0, 0.0)
    assert found.counts["product"] == Counts(4, 4, 5, 9, 0, 2, 1.43, 0.0)
    assert found.callables == {"spotctl/planning": 5}


def test_limits_are_lowered_and_not_raised(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        spotctl__a="def f() -> None:\n    call(a)\n\n    call(b)\n",
        spotctl__b="",
        tests__x="",
    )
    assert write_limits(root) == []
    first = limits(root).counts["product"]
    found = figures(root).counts["product"]
    assert found == Counts(2, 1, 1, 0, 0, 2, 3.0, 33.33)
    assert first == replace(found, wide_lines=300, blank_in_100=4.0)
    (root / "spotctl" / "b.py").write_text(
        f"def g() -> None:\n    call('{'x' * 100}', lambda: 1)\n"
    )
    more = figures(root).counts["product"]
    refused = [
        "functions is 2, the limit 1",
        "callables is 3, the limit 1",
        "nodes_per_statement is 4.0, the limit 3.0",
    ]
    assert write_limits(root) == worse(more, first) == refused
    assert limits(root).counts["product"] == first
    assert limits(root).callables == {"spotctl/a.py": 1, "spotctl/b.py": 2}
    (root / "spotctl" / "b.py").unlink()
    fewer = figures(root).counts["product"]
    assert worse(fewer, first) == []
    assert better(fewer, first) == ["modules is 1, the limit 2", "largest_folder is 1, the limit 2"]
    assert write_limits(root) == []
    assert limits(root).counts["product"] == replace(fewer, wide_lines=300, blank_in_100=4.0)
    assert (root / LIMITS).read_text().startswith("# The figures")


@pytest.mark.parametrize("key", list(asdict(Counts(0, 0, 0, 0, 0, 0, 0, 0))))
def test_each_count_has_a_limit(key: str) -> None:
    limit = Counts(5, 5, 5, 5, 5, 5, 5, 5)
    bad = 4 if key in MORE_IS_BETTER else 6
    assert worse(replace(limit, **{key: bad}), limit) == [f"{key} is {bad}, the limit 5"]
    assert worse(replace(limit, **{key: 10 - bad}), limit) == []
    lower = [] if key in FIXED else [f"{key} is {10 - bad}, the limit 5"]
    assert better(replace(limit, **{key: 10 - bad}), limit) == lower


def test_what_supports_tests_is_counted_and_where_tests_stand(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        spotctl__one="",
        spotctl__room__two="",
        spotctl__room__three="",
        tests__spotctl__test_one="X = 1\n\n\n@mark\ndef test_a() -> None:\n    pass\n",
        tests__spotctl__room__test_two_of_many="",
        tests__spotctl__room__kit="Y = 1\nZ = 2\n",
    )
    assert support_of(root) == Support(lines=2, outside=5, tested=3, mirrored=2)


MAIN = """
import subprocess
import sys
from threading import Thread
from small.planning import first, second

def main(words: list[str]) -> None:
    first.begin(words)
    thread = Thread(target=second.aside)
    thread.start()
    thread.join()
    if words:
        subprocess.run([sys.executable, "-m", "small"], check=True)
    else:
        second.inner()
    sys.exit(0)

if __name__ == "__main__":
    main(sys.argv[1:])
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

def aside() -> None: ...
def inner() -> None: ...
"""
LATE = "class Late:\n    x = 1\n"


def test_the_walk_of_a_small_command(tmp_path: Path) -> None:
    """Through a thread and a process of its own, each function once."""
    root = tree(
        tmp_path,
        small____main__="",
        small__planning__first=FIRST,
        small__planning__second=SECOND,
        small__planning__late=LATE,
    )
    (root / "small" / "__main__.py").write_text(MAIN)
    whole = walk_of(root, ["small"], ["a"])
    assert [name for _, name in whole.steps] == (
        "main begin read end again Plan.cost cost Plan.time aside inner".split()
    )
    walk = whole.within("small/planning")
    assert (walk.files, walk.returns) == (2, 4)
    assert whole.files == 3


def test_the_walk_of_a_command_that_fails_says_why(tmp_path: Path) -> None:
    root = tree(tmp_path, small__x="")
    (root / "small" / "__main__.py").write_text("raise SystemExit('no')\n")
    with pytest.raises(SystemExit, match="ended with 1: no"):
        walk_of(root, ["small"], [])


def test_commands_and_options_are_counted_from_the_command_line() -> None:
    seen = surface_of(ROOT)
    assert 0 < seen.commands < seen.options
    assert seen.commands <= COMMANDS
    assert seen.options <= OPTIONS


COMMANDS, OPTIONS = 50, 282
"""The most that users see."""
