"""Folders and files that only their owner can read, whatever the umask; those of earlier versions are corrected."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o077


def make_private_folder(folder: Path) -> None:
    """Creates a folder for its owner alone, or closes it to others, unless it is a place that they share on purpose."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.stat().st_mode & stat.S_ISVTX and folder.resolve() != Path.home().resolve():
        _close_to_others(folder)


def make_private_file(path: Path) -> None:
    """Creates an empty file for its owner alone, or closes it to others.

    A file that exists is not opened: closing it again would release the locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _close_to_others(path)


def _close_to_others(path: Path) -> None:
    # On some file systems, and in another user's files, modes cannot be changed.
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
