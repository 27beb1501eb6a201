"""`python -m bench.house [CHECKOUT]`: the structure of the code in figures.

A room is a folder or module directly inside a package; an arrow means that one room imports another. A room's floor is
one above the highest room it imports; rooms that import each other in a circle share a floor.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("spotctl", "agileml", "bidbrain", "pricing_data")


@dataclass(frozen=True)
class House:
    """The figures of one package."""

    rooms: int
    floors: int
    arrows: int
    circles: tuple[tuple[str, ...], ...]


def house(root: Path, package: str) -> House:
    """Measures one package of a checkout."""
    arrows = {(source, target) for source, target in _imports(root, package) if source != target}
    rooms = {room for path in _modules(root, package) if (room := _room(path, root))}
    below = {room: {target for source, target in arrows if source == room} for room in rooms}
    reach = {room: _reachable(room, below) for room in rooms}
    circles = {
        tuple(sorted({one for one in reach[room] if room in reach[one]})) for room in rooms if room in reach[room]
    }
    floors = max((_floor(room, below, reach, {}) for room in rooms), default=0)
    return House(len(rooms), floors, len(arrows), tuple(sorted(circles)))


def class_names(root: Path) -> Mapping[str, list[str]]:
    """Where each class name is defined, for names defined more than once; private names count within a package only."""
    found = defaultdict[str, list[str]](list)
    for package in PACKAGES:
        for path in _modules(root, package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(path.relative_to(root).as_posix())
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def _modules(root: Path, package: str) -> list[Path]:
    return sorted((root / package).rglob("*.py"))


def _room(path: Path, root: Path) -> str | None:
    """The folder or module directly inside the package; None for the package's own face."""
    name = path.relative_to(root).with_suffix("").parts[1]
    return None if name == "__init__" else name


def _imports(root: Path, package: str) -> Iterator[tuple[str, str]]:
    for path in _modules(root, package):
        source = _room(path, root)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _names(node):
                parts = name.split(".")
                if source and parts[0] == package and len(parts) > 1 and _is_room(root / package / parts[1]):
                    yield source, parts[1]


def _is_room(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reachable(room: str, below: Mapping[str, set[str]]) -> set[str]:
    seen, todo = set[str](), [room]
    while todo:
        for target in below.get(todo.pop(), set()) - seen:
            seen.add(target)
            todo.append(target)
    return seen


def _floor(room: str, below: Mapping[str, set[str]], reach: Mapping[str, set[str]], known: dict[str, int]) -> int:
    if room not in known:
        lower = [one for one in below.get(room, ()) if room not in reach.get(one, set())]
        known[room] = 1 + max((_floor(one, below, reach, known) for one in lower), default=0)
    return known[room]


def main(words: list[str]) -> None:
    """Prints a table of all packages."""
    root = Path(words[0] if words else ".").resolve()
    print(f"{'package':14}{'rooms':>7}{'floors':>8}{'arrows':>8}{'circles':>9}")
    for package in PACKAGES:
        one = house(root, package)
        print(f"{package:14}{one.rooms:7}{one.floors:8}{one.arrows:8}{len(one.circles):9}")
        for circle in one.circles:
            print(f"  circle: {', '.join(circle)}")
    repeated = class_names(root)
    total = Counter({name: len(places) for name, places in repeated.items()})
    print(f"class names defined more than once: {len(repeated)}")
    for name, times in total.most_common(10):
        print(f"  {name} {times} times: {', '.join(repeated[name])}")


if __name__ == "__main__":
    main(sys.argv[1:])
