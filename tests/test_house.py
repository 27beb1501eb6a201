"""The product stays within its house: counts that only the budget of a capability raises."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.counts import (
    LIMITS,
    MORE_IS_BETTER,
    Counts,
    Figures,
    beyond,
    figures,
    limits,
    write_limits,
)
from bench.support import Support, support_of
from bench.surface import surface_of
from bench.walk import walk_of

ROOT = Path(__file__).parents[1]

HOUSE = Counts(
    modules=700,
    functions=8_100,
    callables=9_000,
    value_classes=1_040,
    wide_lines=300,
    largest_folder=22,
    nodes_per_statement=7.8,
    blank_in_100=4.0,
)
BUDGETS: dict[str, dict[str, int]] = {
    "the road to a GPU": {"modules": 12, "functions": 45, "value_classes": 13},
    "Vast.ai as it behaves": {"modules": 1, "functions": 20},
    "RunPod": {"modules": 12, "functions": 45, "value_classes": 3},
    "Slurm": {"modules": 11, "functions": 50, "value_classes": 4},
    "trainers": {"functions": 10},
}
"""What capabilities that came after the house may add to it, by their names."""
OWED = {"modules": 9, "functions": 93, "value_classes": 3}
"""By how many the product is still above the house. They may only fall, to none."""


@pytest.fixture(scope="module")
def counted() -> Figures:
    return figures(ROOT)


def test_the_product_is_within_its_house(counted: Figures) -> None:
    """A count that has become better is owed less: write that down."""
    allowed = asdict(HOUSE)
    for budget in BUDGETS.values():
        for key, more in budget.items():
            allowed[key] += more
    assert beyond(counted.counts["product"], Counts(**allowed)) == OWED


def test_rooms_have_the_callables_that_the_limits_give_them(counted: Figures) -> None:
    assert counted.callables == limits(ROOT)
    assert sum(limits(ROOT).values()) == counted.counts["product"].callables


def test_nine_of_ten_modules_have_tests_where_their_path_says() -> None:
    support = support_of(ROOT)
    assert support.mirrored >= 0.9 * support.tested


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


def test_rooms_are_written_down(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        spotctl__a="def f() -> None:\n    call(a)\n\n    call(b)\n",
        spotctl__b="x = lambda: 1",
        tests__x="",
    )
    assert figures(root).counts["product"] == Counts(2, 1, 2, 0, 0, 2, 3.0, 33.33)
    write_limits(root)
    assert limits(root) == {"spotctl/a.py": 1, "spotctl/b.py": 1}
    assert (root / LIMITS).read_text().startswith("# The callables")


@pytest.mark.parametrize("key", list(asdict(HOUSE)))
def test_each_count_has_a_limit(key: str) -> None:
    house = Counts(5, 5, 5, 5, 5, 5, 5, 5)
    bad = 3 if key in MORE_IS_BETTER else 7
    assert beyond(replace(house, **{key: bad}), house) == {key: 2}
    assert beyond(replace(house, **{key: 10 - bad}), house) == {}
    assert beyond(house, house) == {}


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


COMMANDS, OPTIONS = 50, 294
"""The most that users see."""
