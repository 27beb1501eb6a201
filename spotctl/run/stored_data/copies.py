"""Copies of data for machines that are processes of this computer: removed when no job has used them for long."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pricing_data.units import DAY
from spotctl.agent.files import exclusive
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.statuses import read_log

_LOCAL = ["local"]


@dataclass(frozen=True, slots=True)
class UnusedCopy:
    """A copy in the home's cache: its bytes, and when a job last used it, in microseconds UTC."""

    folder: Path
    size: int
    used: int


def unused_copies(settings: Settings, days: int) -> list[UnusedCopy]:
    """The copies that no job has used for this many days; none while a run on this computer may need one."""
    cache, before = Paths(settings.home).cache, wall_us() - days * DAY
    if not cache.is_dir():
        return []
    folders = [folder for folder in sorted(cache.iterdir()) if folder.is_dir() and _used(folder) < before]
    log = read_log(settings) if folders else None
    if log is None or log.damage:
        return []
    going = (state.began.spec for state in log.latest if state.ended is None and state.began is not None)
    if any(spec["resources"]["clouds"] == _LOCAL for spec in going):
        return []
    return [UnusedCopy(folder, _size(folder), _used(folder)) for folder in folders]


def remove_copies(settings: Settings, copies: Sequence[UnusedCopy]) -> list[str]:
    """Removes copies, unless a job has used them since; returns what could not be removed."""
    failures = list[str]()
    with exclusive(Paths(settings.home).cache / ".lock"):
        for copy in copies:
            try:
                if _used(copy.folder) == copy.used:
                    # Without its name, it is no copy any more, however the removal ends.
                    leaving = copy.folder.with_name(f".{copy.folder.name.lstrip('.')}")
                    copy.folder.rename(leaving)
                    shutil.rmtree(leaving)
            except OSError as error:
                failures.append(f"data {copy.folder}: not all was removed: {error.strerror or error}")
    return failures


def _used(folder: Path) -> int:
    """The folder's time, which each use sets."""
    return folder.stat().st_mtime_ns // 1000


def _size(folder: Path) -> int:
    return sum(Path(root, name).lstat().st_size for root, _, names in os.walk(folder) for name in names)
