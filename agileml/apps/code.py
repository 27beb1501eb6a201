"""The Python files that a trainer is made of, as far as they are the user's: what nodes of one job must agree on."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

OURS = "agileml"
"""Has a version of its own."""


def digest_of(target: str) -> bytes:
    """Of a trainer's file, or module, and all that it imports from the same folder; of nothing if it cannot be found.

    Neither the place of the folder counts, nor anything installed beside it. The code is read, not run: what it imports
    by a name that is made up as it runs is not seen.
    """
    digest = sha256()
    found = _file(target) if target.endswith(".py") else _module(target.partition(":")[0])
    if found is not None:
        path, root = found
        for file in sorted({path} if root in _installed() else _closure(path, root)):
            digest.update(repr(file.relative_to(root).as_posix()).encode())
            digest.update(sha256(file.read_bytes()).digest())
    return digest.digest()


def _file(target: str) -> tuple[Path, Path] | None:
    path = Path(target).resolve()
    return (path, path.parent) if path.is_file() else None


def _module(name: str) -> tuple[Path, Path] | None:
    """Where Python would find a module: its file, and the folder on the import path."""
    for entry in sys.path:
        root = Path(entry).resolve()
        files = list(_files(root, name.split(".")))
        if files:
            return files[-1], root
    return None


def _installed() -> set[Path]:
    return {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}


def _closure(path: Path, root: Path) -> set[Path]:
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            for parts in _imports(file, root):
                if parts[0] != OURS:
                    waiting += _files(root, parts)
    return seen


def _imports(file: Path, root: Path) -> Iterator[list[str]]:
    """What a file imports, as the parts of names; a name from a module may be a module, too."""
    package = list(file.relative_to(root).parent.parts)
    if package:
        yield package
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        # Whoever loads it is told.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from ([*base, alias.name] for alias in node.names)


def _files(root: Path, parts: list[str]) -> Iterator[Path]:
    """The files of a module beneath a folder, those of the packages around it first."""
    place = root
    for part in parts:
        place = place / part
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
                break
        else:
            if not place.is_dir():
                return
