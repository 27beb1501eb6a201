"""`python -m bench.house [CHECKOUT]`: the structure of the code in structure.

It prints rooms, floors and arrows; the counts that tests/test_house.py limits (`--write` writes the
callables of each room to tests/house_limits.toml); the size of the tests' support; commands and
options; and the walks of a plan and of a launch (`--walks`: they take a minute).

A room is a folder or module directly inside a package, and the package's own `__init__`. An arrow
means that one room imports another, wherever the import stands: in a function and for type
checking, too. A room's floor is one above the highest room it imports. An arrow is up if the room
it points to imports, directly or through others, the room it comes from: these rooms are a circle,
and share a floor. Circles of modules are counted by themselves.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from bench.counts import LIMITS, PACKAGES, Counts, figures, write_limits
from bench.support import support_of
from bench.surface import surface_of
from bench.walk import walk_of

WALKED = (
    ("plan", "examples/pytorch/job.yaml"),
    ("launch", "examples/quickstart.yaml", "--yes"),
)
"""The commands whose walks are printed."""

Graph = Mapping[str, set[str]]
"""The imports of each room or module."""


@dataclass(frozen=True)
class House:
    """The figures of one package."""

    rooms: int
    floors: int
    arrows: int
    up: int
    circles: tuple[tuple[str, ...], ...]
    module_circles: tuple[tuple[str, ...], ...]


def house(root: Path, package: str) -> House:
    """Measures one package of a checkout."""
    modules = _imports(root, package)
    rooms: Graph = {_room(module): set() for module in modules}
    for module, targets in modules.items():
        rooms[_room(module)].update({_room(target) for target in targets} - {_room(module)})
    reach = {room: _reachable(room, rooms) for room in rooms}
    return House(
        rooms=len(rooms),
        floors=max((_floor(room, rooms, reach, {}) for room in rooms), default=0),
        arrows=sum(map(len, rooms.values())),
        up=sum(room in reach[target] for room, targets in rooms.items() for target in targets),
        circles=_circles(rooms),
        module_circles=_circles(modules),
    )


def type_names(root: Path) -> Mapping[str, list[str]]:
    """Where each public class or type alias is defined, for names that are defined more than
    once."""
    places = defaultdict[str, list[str]](list)
    for package in PACKAGES:
        for path in _files(root, package):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            for name in (*classes, *_aliases(tree)):
                if not name.startswith("_"):
                    places[name].append(path.relative_to(root).as_posix())
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def _aliases(tree: ast.Module) -> Iterator[str]:
    """Names in CamelCase that a module assigns."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name[0].isupper() and not name.isupper():
                    yield name


def _files(root: Path, package: str) -> list[Path]:
    return sorted((root / package).rglob("*.py"))


def _module(path: Path, root: Path) -> str:
    """The dotted name of a file; a package's own `__init__` is a module below it."""
    return ".".join(path.relative_to(root).with_suffix("").parts)


def _room(module: str) -> str:
    return module.split(".")[1]


def _imports(root: Path, package: str) -> Graph:
    paths = {_module(path, root): path for path in _files(root, package)}
    return {
        module: {
            target
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in _names(node)
            if (target := _target(name, paths)) is not None and target != module
        }
        for module, path in paths.items()
    }


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _target(name: str, modules: Iterable[str]) -> str | None:
    """The module that an import of a dotted name reads: that of the name, or the one that defines
    it.
    """
    while name:
        for module in (name, f"{name}.__init__"):
            if module in modules:
                return module
        name = name.rpartition(".")[0]
    return None


def _circles(graph: Graph) -> tuple[tuple[str, ...], ...]:
    reach = {name: _reachable(name, graph) for name in graph}
    circles = {
        tuple(sorted({other for other in reach[name] if name in reach[other]}))
        for name in graph
        if name in reach[name]
    }
    return tuple(sorted(circles))


def _reachable(name: str, graph: Graph) -> set[str]:
    seen, todo = set[str](), [name]
    while todo:
        for target in graph.get(todo.pop(), set()) - seen:
            seen.add(target)
            todo.append(target)
    return seen


def _floor(room: str, below: Graph, reach: Graph, known: dict[str, int]) -> int:
    if room not in known:
        lower = [target for target in below[room] if room not in reach[target]]
        known[room] = 1 + max((_floor(target, below, reach, known) for target in lower), default=0)
    return known[room]


def main(words: list[str]) -> int:
    """Prints all figures, or writes the limits of the rooms."""
    options = {word for word in words if word.startswith("--")}
    root = Path(next((word for word in words if word not in options), ".")).resolve()
    if "--write" in options:
        write_limits(root)
        print(f"{LIMITS} has the callables of the tree's rooms")
        return 0

    _print_rooms(root)
    _print_counts(root)
    _print_surface(root)
    if "--walks" in options:
        for command in WALKED:
            walk = walk_of(root, PACKAGES, command)
            print(f"spotctl {' '.join(command)}: {walk.files} files, {walk.returns} returns")
    return 0


def _print_rooms(root: Path) -> None:
    print(
        f"{'package':14}{'rooms':>7}{'floors':>8}{'arrows':>8}{'up':>5}{'circles':>9}{'of modules':>12}"
    )
    for package in PACKAGES:
        structure = house(root, package)
        print(
            f"{package:14}{structure.rooms:7}{structure.floors:8}{structure.arrows:8}{structure.up:5}{len(structure.circles):9}"
            f"{len(structure.module_circles):12}"
        )
        for circle in (*structure.circles, *structure.module_circles):
            print(f"  circle: {', '.join(circle)}")
    repeated = type_names(root)
    total = Counter({name: len(places) for name, places in repeated.items()})
    print(f"names of types defined more than once: {len(repeated)}")
    for name, times in total.most_common(10):
        print(f"  {name} {times} times: {', '.join(repeated[name])}")


def _print_counts(root: Path) -> None:
    names = [field.name for field in fields(Counts)]
    print(f"\n{'folder':14}" + "".join(f"{name.replace('_', ' '):>21}" for name in names))
    counted = figures(root)
    for name, counts in counted.counts.items():
        print(f"{name:14}" + "".join(f"{value:>21,}" for value in asdict(counts).values()))
    rooms = ", ".join(f"{name} {count}" for name, count in counted.callables.items())
    print(f"\ncallables by room: {rooms}")
    support = support_of(root)
    print(
        f"tests: {support.lines:,} lines of files not named test_*, {support.outside:,} lines "
        f"outside test functions; {support.mirrored} of {support.tested} modules have tests at "
        "their mirrored path"
    )


def _print_surface(root: Path) -> None:
    seen = surface_of(root)
    print(
        f"\n{seen.commands} commands and {seen.hidden} hidden ones, {seen.options} options, "
        f"{seen.arguments} arguments"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
