"""Checkpoints in a folder: each is whole and what was written, or it is not used."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.files import replace_json, sync_folder

_LOG = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_WRITING = ".writing-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in its training a job is: `step` batches done in all, the last `batch` of them in this epoch."""

    epoch: int = 0
    batch: int = 0
    step: int = 0


class Checkpoints:
    """The checkpoints of one job (of one rank of it) in a folder, of which the newest `keep` are kept.

    One is written beside, with a digest of each of its files, and then renamed: a kill at any moment leaves the one
    before. What was damaged later is found by its digest, and the one before is taken.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise BadCheckpoint(f"{folder}: keep {keep} checkpoints: keep at least one")
        self.folder, self._keep = folder, keep

    def write(self, place: Place, save: Callable[[Path], None]) -> Path:
        """Lets `save` write its files into a new folder, and makes that the newest checkpoint."""
        # The same step may have been saved before. It has a name of its own, so that there is always one that is whole.
        again = len(self._steps(place.step))
        target = self.folder / f"step-{place.step:012d}-{again:02d}"
        beside = self.folder / f"{_WRITING}{target.name}"
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            save(beside)
            files = _digests(beside)
            if not files:
                raise BadCheckpoint(f"{beside}: save wrote no file into the folder that it was given")
            body = {"place": asdict(place), "files": files}
            replace_json(beside / _MANIFEST, {"body": body, "sha256": _digest_of(body)}, lasting=True)
            beside.rename(target)
            sync_folder(self.folder)
        except OSError as error:
            raise BadCheckpoint(f"{target}: cannot be written: {error.strerror or error}") from error
        self._drop_old(beside.name)
        return target

    def newest(self) -> tuple[Place, Path] | None:
        """The newest checkpoint that is whole, or None where there is no checkpoint. All damaged is an error."""
        steps = self._steps()
        found = _first_whole(steps)
        if found is None and steps:
            raise BadCheckpoint(f"{self.folder}: none of {len(steps)} checkpoints is whole; bring one back or empty it")
        return found

    def latest(self) -> Path | None:
        """The newest checkpoint as it stands there, for who only wants to know which it is."""
        steps = self._steps()
        return steps[-1] if steps else None

    def at(self, step: int) -> tuple[Place, Path]:
        """The checkpoint of a step."""
        found = _first_whole(self._steps(step))
        if found is None:
            raise BadCheckpoint(f"{self.folder}: no whole checkpoint of step {step}, which the other ranks go on from")
        return found

    def _steps(self, step: int | None = None) -> list[Path]:
        """The folders of checkpoints, or of those of one step, in the order in which they were written."""
        return sorted(self.folder.glob("step-*" if step is None else f"step-{step:012d}-*"))

    def _drop_old(self, written: str) -> None:
        """Drops those that are not kept, and what a writer that was killed has begun of an earlier one."""
        unfinished = [path for path in self.folder.glob(f"{_WRITING}*") if path.name < written]
        for path in [*self._steps()[: -self._keep], *unfinished]:
            shutil.rmtree(path, ignore_errors=True)


def _first_whole(newest_last: list[Path]) -> tuple[Place, Path] | None:
    verified = ((_verified(path), path) for path in reversed(newest_last))
    return next(((place, path) for place, path in verified if place is not None), None)


def _digests(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, each written through to the disk first."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            found[path.relative_to(folder).as_posix()] = _digest(path)
        elif path.is_dir():
            sync_folder(path)
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_of(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _verified(path: Path) -> Place | None:
    """The place of a checkpoint whose files are those that were written; None, and a warning, where they are not."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        body = manifest["body"]
        if _digest_of(body) != manifest["sha256"]:
            raise ValueError(f"{_MANIFEST} does not have its own digest")
        for name, digest in body["files"].items():
            if _digest(path / name) != digest:
                raise ValueError(f"{name} is not what was written")
        return Place(**body["place"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("checkpoint %s is left out: %s", path, error)
        return None
