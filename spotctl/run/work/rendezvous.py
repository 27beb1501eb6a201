"""The folder where a run's processes find each other, with the secret by which they authenticate each other.

The folder is outside of the home: sockets need short paths, and the secret is not kept next to the log.
"""

import os
import secrets
import tempfile
from pathlib import Path

from agileml.runtime.folders import NotPrivate, require_private
from spotctl.clouds.owner_only import read_or_create
from spotctl.home.errors import BadRequest

_LONGEST_BASE = 40
"""Bytes of the temporary folder's path that leave room for the names of sockets."""

_SECRET_BYTES = 32
_SECRET_FILE = "secret"  # noqa: S105 - the name of the file, in a folder only its owner can read


def new_path() -> Path:
    """A path for a run's folder. The log records it before `make` creates it, so that no folder is left unrecorded."""
    base = tempfile.gettempdir()
    short = base if len(os.fsencode(base)) <= _LONGEST_BASE else "/tmp"  # noqa: S108 - only the owner can read the folder
    return Path(short) / f"spotctl-{secrets.token_hex(4)}"


def make(folder: Path) -> None:
    """Creates the folder, readable by its owner only, and the secret."""
    folder.mkdir(mode=0o700, exist_ok=True)
    check(folder)
    read_or_create(folder / _SECRET_FILE, secrets.token_bytes(_SECRET_BYTES))


def check(folder: Path) -> None:
    """Raises BadRequest if another user may have written what is in the folder.

    Its name is in the log, and after a restart of the computer anybody can create a folder of that name.
    """
    try:
        require_private(folder)
    except NotPrivate as error:
        raise BadRequest(f"{error}; 'spotctl stop' closes its run, 'spotctl launch' starts it again") from error


def secret_of(folder: Path) -> bytes:
    """The secret; empty if the folder is gone or another user's: a run that only returns its machines needs none."""
    path = folder / _SECRET_FILE
    try:
        require_private(folder)
        return path.read_bytes()
    except (FileNotFoundError, NotPrivate):
        return b""
