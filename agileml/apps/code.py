"""The user's Python files that make up a trainer: their digest must be the same on all nodes of a
job.
"""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath

from agileml.errors import BadArgument, PeerRefused

OWN_PACKAGE = "agileml"
"""Not part of a trainer: it has its own version."""


def digest_of(target: str) -> bytes:
    """Hashes a trainer's file or module and all that it imports from the same folder; nothing if it
    is not found.

    It does not depend on the folder's path or on installed packages. The code is parsed, not run,
    so that imports of computed names are not included.
    """
    digest = sha256()
    source = _source(target)
    if source is not None:
        root, files = source
        for file in files:
            digest.update(repr(file.relative_to(root).as_posix()).encode())
            digest.update(sha256(file.read_bytes()).digest())
    return digest.digest()


def content_digest(file: str) -> bytes:
    """A digest of the content of a data file. Raises BadArgument if it cannot be read."""
    try:
        with Path(file).open("rb") as content:
            return file_digest(content, "sha256").digest()
    except OSError as error:
        raise unreadable(file, error) from None


def unreadable(file: Path | str, error: OSError) -> BadArgument:
    return BadArgument(f"{file}: {error.strerror or error}; name a file of rows such as 17,42,3.5")


def files_of(target: str) -> dict[str, bytes]:
    """Reads the files of a trainer's own code, by their paths relative to its folder, for a node
    that has none of them.

    Empty for a trainer of an installed package, which each node must have.
    """
    source = _source(target)
    if source is None or source[0] in _installed():
        return {}

    root, files = source
    names = {file.relative_to(root).as_posix(): file for file in files}
    return {
        name: file.read_bytes()
        for name, file in names.items()
        if not name.startswith(f"{OWN_PACKAGE}/")
    }


def text_of(target: str) -> str:
    """The source of a trainer's own file or module; empty if it is not found."""
    file, _ = split(target)
    path, _ = (Path(file), None) if file else _module(target.partition(":")[0]) or (Path(), None)
    if path.is_file():
        return path.read_text("utf-8", "replace")
    return ""


def unpack(files: Mapping[str, bytes], folder: Path, target: str) -> str:
    """Writes a trainer's files to a folder, from which it can then be loaded; returns its new
    name."""
    for name, content in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise PeerRefused(f"the job sent a file outside the trainer's folder: {name!r}")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    file, attribute = split(target)
    if file:
        return str(folder / Path(file).name) + (f":{attribute}" if attribute else "")

    # Before this computer's own modules: the job's code is to be run.
    sys.path.insert(0, str(folder))
    return target


def split(target: str) -> tuple[str, str]:
    """The file of a target `FILE.py` or `FILE.py:NAME`, and the name; empty texts for another
    target.
    """
    if target.endswith(".py"):
        return target, ""
    file, _, name = target.rpartition(":")
    if file.endswith(".py"):
        return (file, name)
    return ("", "")


def _source(target: str) -> tuple[Path, list[Path]] | None:
    """The folder that a trainer's modules are found in, and its files."""
    file, _ = split(target)
    if file:
        path = Path(file).resolve()
        source = (path, path.parent) if path.is_file() else None
    else:
        source = _module(target.partition(":")[0])

    if source is None:
        return None

    path, root = source
    if root in _installed():
        return root, [path]

    # All files that it imports, directly or through others.
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        imported = waiting.pop()
        if imported not in seen:
            seen.add(imported)
            for parts in _imports(imported, root):
                if parts[0] != OWN_PACKAGE:
                    waiting += _files(root, parts)

    return root, sorted(seen)


def _module(name: str) -> tuple[Path, Path] | None:
    """The file of a module, as Python would find it, and its folder on the import path."""
    for entry in sys.path:
        root = Path(entry).resolve()
        files = list(_files(root, name.split(".")))
        if files:
            return files[-1], root
    return None


def _installed() -> set[Path]:
    return {
        Path(sysconfig.get_path(kind)).resolve()
        for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    }


def _imports(file: Path, root: Path) -> Iterator[list[str]]:
    """The modules that a file imports, as lists of name parts; a name imported from a module may be
    a module, too.
    """
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
    """The files of a module under a folder, its parent packages first."""
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
