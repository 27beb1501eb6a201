"""Folders that are read as code: only the user who reads them may have written them."""

import os
import stat
from pathlib import Path

from agileml.errors import BadInput


class NotPrivate(BadInput):
    """A folder that another user of this computer owns or can write to."""


def require_private(folder: Path) -> None:
    """Raises NotPrivate if another user can write to the folder; one that does not exist passes.

    A link counts as well: its owner decides where it leads.
    """
    for status in (os.lstat, os.stat):
        try:
            seen = status(folder)
        except FileNotFoundError:
            return
        if seen.st_uid != os.getuid():
            raise NotPrivate(f"{folder} belongs to another user of this computer; nothing is read from it")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotPrivate(f"other users can write to {folder}; nothing is read from it")
