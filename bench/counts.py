"""How many things a reader of the product must hold in mind: modules, functions and value classes.

Functions are all `def`s, methods and inner ones too. Value classes are dataclasses, classes of
attrs, and subclasses of Struct, NamedTuple, TypedDict or BaseModel, also through classes of the
project. Lines per statement inside functions keep the counts honest: fewer things by denser code
are no gain.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PLACES = {
    **{name: name for name in ("spotctl", "bidbrain", "agileml", "pricing_data")},
    **{name: f"spotctl/{name}" for name in ("planning", "agent")},
}
"""The folders that are counted, by their names."""
LIMITS = Path("tests", "house_limits.toml")
_VALUES = {"Struct", "NamedTuple", "TypedDict", "BaseModel"}
_DECORATORS = ("dataclass", "define", "frozen", "attrs.", "attr.s")


@dataclass(frozen=True)
class Counts:
    """The counts of one folder."""

    modules: int
    functions: int
    value_classes: int
    largest_folder: int
    """Modules in the folder that has the most."""
    lines_per_statement: float
    """Lines per statement inside functions."""


def all_counts(root: Path) -> dict[str, Counts]:
    """The counts of each package of a checkout, and of two rooms of spotctl."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _paths(root)}
    values = _value_names(trees.values())
    return {
        name: _counts(
            {path: tree for path, tree in trees.items() if path.is_relative_to(root / folder)},
            values,
        )
        for name, folder in PLACES.items()
        if (root / folder).is_dir()
    }


def _paths(root: Path) -> Iterator[Path]:
    for folder in PLACES.values():
        if "/" not in folder:
            yield from sorted((root / folder).rglob("*.py"))


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


def _counts(trees: Mapping[Path, ast.Module], values: set[str]) -> Counts:
    functions = value_classes = lines = statements = 0
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            value_classes += _is_value(node, values)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions += 1
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                lines += (body[-1].end_lineno or 0) - body[0].lineno + 1
                statements += sum(
                    isinstance(inner, ast.stmt) for part in body for inner in ast.walk(part)
                )
    folders = Counter(path.parent for path in trees)
    return Counts(
        modules=len(trees),
        functions=functions,
        value_classes=value_classes,
        largest_folder=max(folders.values(), default=0),
        lines_per_statement=round(lines / statements, 3) if statements else 0.0,
    )


def _is_value(node: ast.ClassDef, values: set[str]) -> bool:
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    decorated = any(mark.startswith(_DECORATORS) or "dataclass" in mark for mark in marks)
    return decorated or any(_last(base) in values for base in node.bases)


def limits(root: Path) -> dict[str, Counts]:
    """The limits that the project keeps."""
    content = tomllib.loads((root / LIMITS).read_text(encoding="utf-8"))
    return {name: Counts(**counts) for name, counts in content.items()}


def above(now: Counts, limit: Counts) -> list[str]:
    """The counts that are worse than their limits: more things, or denser code."""
    return [
        f"{key} is {asdict(now)[key]}, the limit {value}"
        for key, value in asdict(limit).items()
        if _better(key, value, asdict(now)[key])
    ]


def below(now: Counts, limit: Counts) -> list[str]:
    """The counts that are better than their limits, which can be lowered."""
    return [
        f"{key} is {asdict(now)[key]}, the limit {value}"
        for key, value in asdict(limit).items()
        if _better(key, asdict(now)[key], value)
    ]


def _better(key: str, value: float, other: float) -> bool:
    return value > other if key == "lines_per_statement" else value < other


def lowered(root: Path, may_raise: bool = False) -> list[str]:
    """Writes the limits down as the tree's own figures, and returns what it refused to raise."""
    now, known = all_counts(root), limits(root) if (root / LIMITS).exists() else {}
    kept, refused = dict[str, dict[str, float]](), list[str]()
    for name, counts in now.items():
        kept[name] = asdict(counts)
        for key, value in asdict(known[name]).items() if name in known and not may_raise else ():
            if _better(key, value, kept[name][key]):
                refused.append(f"{name}: {key} is {kept[name][key]}, the limit stays {value}")
                kept[name][key] = value
    text = "".join(
        f"\n[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in counts.items())
        for name, counts in kept.items()
    )
    (root / LIMITS).write_text(_HEAD + text, encoding="utf-8")
    return refused


_HEAD = """\
# For each package and for two rooms of spotctl: the most modules, functions and value classes, the most modules in one
# folder, and the fewest lines per statement inside functions. `python -m bench.house --write` sets them to the figures
# of the tree, and raises none without --raise: the commit says why. tests/test_house.py fails where the tree has more
# than a limit, and where a limit can be lowered.
"""
