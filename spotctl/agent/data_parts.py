"""Describes a folder, or a file, of this computer as a data set."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spotctl.agent.data_sets import DataSet, SetFile
from spotctl.agent.errors import TransferFailed

_PERMISSIONS = 0o777

DigestOf = Callable[[str, Path, os.stat_result], str]
"""The digest of a file, from its name in the data set, its path and its status."""


def describe(source: Path, digest: DigestOf) -> DataSet:
    """The parts of a folder or a file. TransferFailed: one of them cannot be read. FileNotFoundError: one went away."""
    parts = _Parts(source, digest)
    try:
        parts.add(source.name, source)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TransferFailed(f"data {source}: {error.filename}: cannot be read: {error.strerror}") from error
    return DataSet(source.name, parts.files, parts.folders, parts.links)


@dataclass
class _Parts:
    """The parts of a folder as they are met. A link to a place inside stays a link; for any other, its target is
    taken."""

    source: Path
    digest: DigestOf
    files: dict[str, SetFile] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, path: Path, within: tuple[str, ...] = ()) -> None:
        """Adds a part by its name in the data set. `within` are the real paths of the folders that it is in."""
        if path.is_symlink() and within and (target := self._target_inside(path, within[0])):
            self.links[name] = target
            return
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                raise self._refusal(path, f"is a link to {path.readlink()}, which does not exist") from None
            raise
        if stat.S_ISDIR(status.st_mode):
            real = os.path.realpath(path)
            if real in within:
                raise self._refusal(path, f"leads back to {real}, in which it is itself; remove the link")
            self.folders[name] = status.st_mode & _PERMISSIONS
            for part in _names(path):
                self.add(f"{name}/{part}", path / part, (*within, real))
        elif stat.S_ISREG(status.st_mode):
            digest = self.digest(name, path, status)
            self.files[name] = SetFile(status.st_size, digest, status.st_mode & _PERMISSIONS)
        else:
            raise self._refusal(path, "is no file, folder or link; move it elsewhere")

    def _target_inside(self, path: Path, root: str) -> str:
        """The target of a link, relative to it, if that is inside the data folder; empty otherwise."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root) or not Path(os.path.realpath(path.parent)).is_relative_to(root):
            return ""
        return os.path.relpath(real, os.path.realpath(path.parent))

    def _refusal(self, path: Path, why: str) -> TransferFailed:
        return TransferFailed(f"data {self.source}: {path} {why}")


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from sorted(entry.name for entry in entries)
