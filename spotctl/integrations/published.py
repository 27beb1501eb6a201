"""Checkpoints that appear whole in the folder that spotctl copies: written under a hidden name, then renamed."""

import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from spotctl.agent.checkpoints.interval import CHECKPOINT_VARIABLE

_NUMBER = re.compile(r"-(\d+)(?:\.\w+)?$")


class PublishedCheckpoints:
    """The checkpoints of one program, files or folders whose names end with their step: `checkpoint-120`."""

    def __init__(self, folder: Path | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder or Path(environment.get(CHECKPOINT_VARIABLE, "checkpoints"))

    def all(self) -> list[Path]:
        """All checkpoints, from the oldest step to the newest."""
        visible = [path for path in self._folder.glob("*") if not path.name.startswith(".")]
        return sorted((path for path in visible if _NUMBER.search(path.name)), key=_step)

    def hidden(self, name: str) -> Path:
        """The path to write a checkpoint to before it is published; it is free, and torch.save accepts its name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f".new-{name}"
        _remove(path)
        return path

    def publish(self, name: str, keep: Collection[str] = ()) -> None:
        """Makes a hidden checkpoint visible, and removes all others except those in `keep`."""
        target = self._folder / name
        _remove(target)
        (self._folder / f".new-{name}").rename(target)
        for other in self.all():
            if other.name not in {name, *keep}:
                _remove(other)


def link_tree(source: Path, target: Path) -> None:
    """Copies a folder, without taking room if the file system has hard links."""
    _remove(target)
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _step(path: Path) -> int:
    match = _NUMBER.search(path.name)
    return int(match[1]) if match else -1


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
