"""Packs the job's folder for machines: a tar file without the paths that `.spotctlignore` names.

Each line of `.spotctlignore` is a pattern of paths or names, as in `.gitignore`: `*` and `?` match
within a name, a pattern with a slash before its end is relative to the folder, a pattern that ends
with a slash matches folders only, and `#` begins a comment. `.git`, `__pycache__` and a home of
spotctl are never copied.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from spotctl.clouds.remote.bundle import Archive
from spotctl.home.errors import BadRequest

IGNORE_FILE = ".spotctlignore"
MAX_BYTES = 256 << 20

_NEVER_COPIED = (".git", "__pycache__")
_OF_HOMES = ("installation", "log.sqlite")
"""Files of a home of spotctl: with them lie the keys of machines, and files that change while they
are copied."""


_Pattern = tuple[str, bool, bool]
"""One line of `.spotctlignore`: its text, whether it matches folders only, and whether it is
relative to the folder."""


def check_folder(folder: Path) -> None:
    """BadRequest: the folder is missing, too large to be copied to machines, or its
    `.spotctlignore` is wrong.
    """
    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder; correct workdir in the job file")
    if _is_home(folder):
        cure = "use another workdir"
        problem = f"{folder}: is a spotctl home, whose keys must not reach a machine; {cure}"
        raise BadRequest(problem)

    size = sum(path.lstat().st_size for path, is_folder in _entries(folder) if not is_folder)
    if size > MAX_BYTES:
        problem = (
            f"{folder}: {size / (1 << 20):,.0f} MiB would be copied to each machine, but the "
            f"limit is {MAX_BYTES >> 20} MiB: list in {folder / IGNORE_FILE} what machines do not "
            "need, and large input under data: in the job file"
        )
        raise BadRequest(problem)


def job_archive(folder: Path, into: Path) -> Archive:
    """The folder as a compressed tar file below `into`; the same files with the same times give the
    same archive.
    """
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=".job-", dir=into)
    part = Path(name)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            # Without the name and the time of this file.
            gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path, _ in _entries(folder):
                archive.add(
                    path, path.relative_to(folder).as_posix(), recursive=False, filter=_plain
                )
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        whole = into / f"{digest}.tar.gz"
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)

    return Archive(digest, whole)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without this computer's users, and with a time of whole seconds."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    return entry


def _entries(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The paths to copy, in order, folders before their contents; each with whether it is a
    folder."""
    ignore, patterns, lines = folder / IGNORE_FILE, list[_Pattern](), list[str]()
    try:
        lines = [line.strip() for line in ignore.read_text().splitlines()]
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{ignore}: cannot be read: {error}") from None

    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("!") or "**" in line:
            problem = f"{line}: patterns with '!' or '**' are not supported"
            raise BadRequest(f"{ignore}, line {number}: {problem}")
        text = line.rstrip("/")
        patterns.append((text.lstrip("/"), line.endswith("/"), "/" in text))

    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name for name in folders if not _ignored(here / name, folder, patterns, is_folder=True)
        )
        for name in folders:
            yield here / name, not (here / name).is_symlink()
        for name in sorted(files):
            path = here / name
            regular = path.is_symlink() or path.is_file()
            if regular and not _ignored(path, folder, patterns, is_folder=False):
                yield path, False


def _is_home(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _OF_HOMES)


def _ignored(path: Path, root: Path, patterns: Sequence[_Pattern], *, is_folder: bool) -> bool:
    relative = path.relative_to(root).as_posix()
    if path.name in _NEVER_COPIED or (is_folder and _is_home(path)):
        return True

    for text, folders_only, is_anchored in patterns:
        subject = relative if is_anchored else path.name
        is_deep = subject.count("/") != text.count("/")
        if (is_folder or not folders_only) and not is_deep and fnmatch.fnmatchcase(subject, text):
            return True
    return False
