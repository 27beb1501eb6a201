"""Prices that are lost: segments that were damaged or missing, and were taken out of the store."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

FOLDER = "set-aside"
"""The folder, in that of the store, that keeps damaged files."""


@dataclass(frozen=True, slots=True)
class LostPrices:
    """A segment that was set aside: its file, how many rows it had, and their span in microseconds UTC."""

    file: str
    rows: int
    first: int
    last: int


def keep_file(root: Path, name: str) -> None:
    """Keeps a damaged file where the store deletes nothing; a missing one cannot be kept."""
    kept = root / FOLDER / name
    kept.parent.mkdir(exist_ok=True)
    kept.unlink(missing_ok=True)
    try:
        os.link(root / name, kept)
    except FileNotFoundError:
        return
    except OSError:
        # Not every file system has links.
        shutil.copyfile(root / name, kept)
