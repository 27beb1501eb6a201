"""A digest of the user's Python files that make up a trainer; it must be the same on all nodes of a job."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

OWN_PACKAGE = "agileml"
"""Not part of the digest: it has its own version."""


def digest_of(target: str) -> bytes:
    """Hashes a trainer's file or module and all that it imports from the same folder; nothing if it is not found.

    It does not depend on the folder's path or on installed packages. The code is parsed, not run, so that imports of
    computed names are not included.
    """
    digest = sha256()
    source = _file(target) if target.endswith(".py") else _module(target.partition(":")[0])
    if source is not None:
        path, root = source
        for file in sorted({path} if root in _installed() else _closure(path, root)):
            digest.update(repr(file.relative_to(root).as_posix()).encode())
            digest.update(sha256(file.read_bytes()).digest())
    return digest.digest()


def _file(target: str) -> tuple[Path, Path] | None:
    path = Path(target).resolve()
    return (path, path.parent) if path.is_file() else None


def _module(name: str) -> tuple[Path, Path] | None:
    """The file of a module, as Python would find it, and its folder on the import path."""
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
                if parts[0] != OWN_PACKAGE:
                    waiting += _files(root, parts)
    return seen


def _imports(file: Path, root: Path) -> Iterator[list[str]]:
    """The modules that a file imports, as lists of name parts; a name imported from a module may be a module, too."""
    package = list(file.relative_to(root).parent.parts)
    if package:
        yield package
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        # Loading the file reports the error.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from ([*base, alias.name] for alias in node.names)


def _files(root: Path, parts: list[str]) -> Iterator[Path]:
    """The files of a module under a folder, starting with those of its parent packages."""
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
