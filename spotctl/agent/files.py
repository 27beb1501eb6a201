"""Small JSON files that another process reads while they are replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_json(path: Path, value: dict[str, Any], *, lasting: bool = False) -> None:
    """Writes a file so that a reader sees the old content or the new; `lasting` survives a crash of the machine."""
    # The process id keeps two writers apart: a runner that was killed, and the one that goes on in its place.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w") as file:
        json.dump(value, file)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)
    if lasting:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
