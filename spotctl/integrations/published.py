"""Checkpoints that appear whole in the folder that spotctl copies: written under a hidden name, then renamed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from spotctl.agent.interval import CHECKPOINT_VARIABLE

_NUMBER = re.compile(r"-(\d+)(?:\.\w+)?$")


class PublishedCheckpoints:
    """The checkpoints of one program, files or folders whose names end with their step: `checkpoint-120`."""

    def __init__(self, folder: Path | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder or Path(environment.get(CHECKPOINT_VARIABLE, "checkpoints"))

    def all(self) -> list[Path]:
        """From the oldest step to the newest."""
        visible = [path for path in self._folder.glob("*") if not path.name.startswith(".")]
        return sorted((path for path in visible if _NUMBER.search(path.name)), key=_step)

    def hidden(self, name: str) -> Path:
        """Where a checkpoint is written before it is published; nothing is there. torch.save accepts such names."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f".new-{name}"
        _remove(path)
        return path

    def publish(self, name: str, keep: Collection[str] = ()) -> None:
        """Makes a hidden checkpoint visible, and removes all others but those to keep."""
        target = self._folder / name
        _remove(target)
        (self._folder / f".new-{name}").rename(target)
        for other in self.all():
            if other.name not in {name, *keep}:
                _remove(other)


def link_tree(source: Path, target: Path) -> None:
    """A copy of a folder that takes no room where the file system has hard links."""
    _remove(target)
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _step(path: Path) -> int:
    found = _NUMBER.search(path.name)
    return int(found[1]) if found else -1


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
