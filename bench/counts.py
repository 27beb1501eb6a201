"""How many things a reader of the product must hold in mind, and how dense its text is.

Functions are all `def`s, methods and inner ones too; callables are functions and lambdas, since a
function that became a lambda has not gone. Value classes are dataclasses, classes of attrs, and
subclasses of Struct, NamedTuple, TypedDict or BaseModel, also through classes of the project. Nodes
per statement are nodes of expressions inside functions: long expressions are no way to have fewer
functions. Blank lines are those inside functions; wide lines have more than 100 characters.

tests/test_house.py says what the product may have of each, and why; tests/house_limits.toml, how many
callables each room may have.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGES = ("spotctl", "agileml", "bidbrain", "pricing_data")
LIMITS = Path("tests", "house_limits.toml")
WIDE = 100
MORE_IS_BETTER = ("blank_in_100",)
"""Counts whose limit is the least that a house may have."""
_VALUES = {"Struct", "NamedTuple", "TypedDict", "BaseModel"}
_DECORATORS = ("dataclass", "define", "frozen", "attrs.", "attr.s")
_NO_EXPRESSION = (ast.expr_context, ast.stmt, ast.operator, ast.cmpop)


@dataclass(frozen=True)
class Counts:
    """The counts of some files."""

    modules: int
    functions: int
    callables: int
    value_classes: int
    wide_lines: int
    largest_folder: int
    """Modules in the folder that has the most."""
    nodes_per_statement: float
    blank_in_100: float


@dataclass(frozen=True)
class Figures:
    """The counts of each package of a checkout, those of all together as `product`, and the
    callables of each room: a folder or module directly inside a package."""

    counts: Mapping[str, Counts]
    callables: Mapping[str, int]


def figures(root: Path) -> Figures:
    """Counts a checkout."""
    paths = [path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    values = _value_names(trees.values())
    totals = defaultdict[str, Counter[str]](Counter)
    rooms = Counter[str]()
    for path, tree in trees.items():
        package, room = path.relative_to(root).parts[:2]
        of_file = _totals(tree, path.read_text(encoding="utf-8").splitlines(), values)
        totals[package] += of_file
        totals["product"] += of_file
        rooms[f"{package}/{room}"] += of_file["functions"] + of_file["lambdas"]

    folders = Counter(path.parent.relative_to(root) for path in paths)
    return Figures(
        counts={
            name: _counts(total, [size for folder, size in folders.items() if _is_in(folder, name)])
            for name, total in totals.items()
        },
        callables={room: count for room, count in sorted(rooms.items()) if count},
    )


def _is_in(folder: Path, name: str) -> bool:
    return name in ("product", folder.parts[0])


def _counts(totals: Counter[str], folders: list[int]) -> Counts:
    return Counts(
        modules=sum(folders),
        functions=totals["functions"],
        callables=totals["functions"] + totals["lambdas"],
        value_classes=totals["values"],
        wide_lines=totals["wide"],
        largest_folder=max(folders),
        nodes_per_statement=round(totals["nodes"] / max(totals["statements"], 1), 2),
        blank_in_100=round(100 * totals["blank"] / max(totals["lines"], 1), 2),
    )


def _totals(tree: ast.Module, lines: list[str], values: set[str]) -> Counter[str]:
    totals = Counter(wide=sum(len(line) > WIDE for line in lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            totals["lambdas"] += 1
        elif isinstance(node, ast.ClassDef):
            totals["values"] += _is_value(node, values)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            totals["functions"] += 1
            totals.update(_inside(node, lines))
    return totals


def _inside(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Counter[str]:
    """Lines, statements and nodes of expressions of a function's body, without its docstring."""
    documented = ast.get_docstring(function) is not None
    body = function.body[1:] if documented else function.body
    if not body:
        return Counter()

    text = lines[body[0].lineno - 1 : body[-1].end_lineno]
    nodes = [node for statement in body for node in ast.walk(statement)]
    return Counter(
        lines=len(text),
        blank=sum(not line.strip() for line in text),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        nodes=sum(not isinstance(node, _NO_EXPRESSION) for node in nodes),
    )


def _value_names(trees: Iterable[ast.Module]) -> set[str]:
    """Names of classes that are values by their bases, directly or through others."""
    bases = defaultdict[str, set[str]](set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {_last(base) for base in node.bases}
    known = set(_VALUES)
    while grown := {name for name, of in bases.items() if of & known} - known:
        known |= grown
    return known


def _last(node: ast.expr) -> str:
    return ast.unparse(node).split("[")[0].split("(")[0].split(".")[-1]


def _is_value(node: ast.ClassDef, values: set[str]) -> bool:
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    decorated = any(mark.startswith(_DECORATORS) or "dataclass" in mark for mark in marks)
    return decorated or any(_last(base) in values for base in node.bases)


def beyond(now: Counts, house: Counts) -> dict[str, float]:
    """By how much each count that is worse than a house allows is worse."""
    limits = asdict(house)
    excess = {}
    for key, figure in asdict(now).items():
        sign = -1 if key in MORE_IS_BETTER else 1
        if sign * (figure - limits[key]) > 0:
            excess[key] = round(abs(figure - limits[key]), 2)

    return excess


def limits(root: Path) -> dict[str, int]:
    """The callables that each room may have."""
    rooms: dict[str, int] = tomllib.loads((root / LIMITS).read_text(encoding="utf-8"))["callables"]
    return rooms


def write_limits(root: Path) -> None:
    """Writes the callables of each room down as its limit: rooms may give some to each other."""
    rooms = (f'"{room}" = {count}\n' for room, count in figures(root).callables.items())
    (root / LIMITS).write_text(f"{_HEAD}\n[callables]\n{''.join(rooms)}", encoding="utf-8")


_HEAD = """\
# The callables of each room. One room may have more only if others have as many fewer, or the house has room for them:
# tests/test_house.py says how many there may be. `python -m bench.house --write` writes those of the tree.
"""
