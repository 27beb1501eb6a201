"""The saves of a gang: finds complete saves and their files, and copies a save to the checkpoint."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agileml.errors import AgileMLError
from spotctl.integrations.peer_store import Peers, fetch

if TYPE_CHECKING:
    from agileml.runtime.blob_store import BlobStore

METADATA = ".metadata"
"""The file that PyTorch writes when all ranks have written: a save without this file is not complete."""

_ROOT, _STORED_METADATA = "saves", "metadata"
_CHECKPOINT = "gang-"


@dataclass(frozen=True, slots=True, order=True)
class SaveName:
    """A save: the number of steps that are done, and the token of the gang's start that wrote it."""

    step: int
    token: str

    def __str__(self) -> str:
        return f"{self.step:010d}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> SaveName:
        """The inverse of `str`."""
        step, _, token = text.partition("-")
        return cls(int(step), token)


def grouped(names: Iterable[str]) -> dict[SaveName, set[str]]:
    """The files of each save, from the names of blobs."""
    saves: dict[SaveName, set[str]] = {}
    for name in names:
        root, save, file = name.split("/")
        if root == _ROOT:
            saves.setdefault(SaveName.parse(save), set()).add(METADATA if file == _STORED_METADATA else file)
    return saves


def files_of(metadata: Path) -> set[str]:
    """The files that a save's metadata refers to. The metadata comes from a holder of the gang's secret."""
    with metadata.open("rb") as file:
        content = pickle.load(file)  # noqa: S301
    return {info.relative_path for info in content.storage_data.values()}


class Saves:
    """Saves on this machine, with copies on `copies` others, and in the folder of checkpoints, if there is one."""

    def __init__(self, peers: Peers, copies: int, checkpoints: Path | None) -> None:
        self._peers, self._copies, self._checkpoints = peers, copies, checkpoints

    def store(self, name: SaveName, folder: Path) -> None:
        """Stores the files that one rank has written, the metadata last."""
        for path in sorted(folder.iterdir(), reverse=True):
            self._peers.put(_blob(name, path.name), path, self._copies)

    def drop_before(self, name: SaveName) -> None:
        """Removes older saves from this machine."""
        self._peers.drop_before(f"{_ROOT}/{name}")

    def newest(self) -> SaveName | None:
        """The newest complete save."""
        checkpoint = max(self._kept(), default=None)
        holders = self._peers.names()
        for name, files in sorted(grouped(holders).items(), reverse=True):
            if checkpoint is not None and name <= checkpoint:
                break
            if METADATA in files and self._is_complete(name, files, holders):
                return name
        return checkpoint

    def gather(self, name: SaveName, folder: Path) -> None:
        """Copies all files of a save into a new folder. AgileMLError: a file is gone, with the machines that had it."""
        shutil.rmtree(folder, ignore_errors=True)
        if name in self._kept():
            shutil.copytree(self._checkpoint_of(name), folder)
            (folder / _STORED_METADATA).rename(folder / METADATA)
            return
        folder.mkdir(parents=True)
        holders = self._peers.names()
        for file in grouped(holders).get(name, ()):
            blob = _blob(name, file)
            if not fetch(blob, holders[blob], folder / file):
                raise AgileMLError(f"{file} of the save at step {name.step} is gone, with the machines that had it")

    def checkpoint(self, name: SaveName) -> None:
        """Replaces the save in the folder that spotctl copies to the job's checkpoint place."""
        if self._checkpoints is None or name in self._kept():
            return
        earlier, new = self._kept(), self._checkpoint_of(name)
        part = new.with_name(f".{new.name}")
        self.gather(name, part)
        # Hidden files are not part of a checkpoint that spotctl copies.
        (part / METADATA).rename(part / _STORED_METADATA)
        part.rename(new)
        for save in earlier:
            shutil.rmtree(self._checkpoint_of(save))

    def _is_complete(self, name: SaveName, files: set[str], holders: Mapping[str, list[BlobStore]]) -> bool:
        path = self._peers.scratch / METADATA
        blob = _blob(name, METADATA)
        return fetch(blob, holders[blob], path) and files_of(path) <= files

    def _kept(self) -> list[SaveName]:
        """The saves in the folder of checkpoints."""
        if self._checkpoints is None:
            return []
        paths = self._checkpoints.glob(f"{_CHECKPOINT}*/{_STORED_METADATA}")
        return [SaveName.parse(path.parent.name.removeprefix(_CHECKPOINT)) for path in paths]

    def _checkpoint_of(self, name: SaveName) -> Path:
        assert self._checkpoints is not None
        return self._checkpoints / f"{_CHECKPOINT}{name}"


def _blob(name: SaveName, file: str) -> str:
    return f"{_ROOT}/{name}/{_STORED_METADATA if file == METADATA else file}"
