"""Where a run's processes meet: a folder for its owner alone, with the secret by which they know each other.

It is outside of the home: sockets need short paths, and the secret is not kept where the log is.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from spotctl.errors import BadRequest

_LONGEST_BASE = 40
"""Bytes of a path that leave room for sockets named after machines."""

_SECRET_BYTES = 32
_SECRET_FILE = "secret"  # noqa: S105 - the name of the file, in a folder for its owner alone


def named() -> Path:
    """Where a run's processes are to meet: named before it is made, so that none is made that no log tells of."""
    base = tempfile.gettempdir()
    short = base if len(os.fsencode(base)) <= _LONGEST_BASE else "/tmp"  # noqa: S108 - the folder in it is our own alone
    return Path(short) / f"spotctl-{secrets.token_hex(4)}"


def make(folder: Path) -> None:
    """For its owner alone, with the secret by which a run's processes know each other."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise BadRequest(f"{folder} belongs to somebody else; launch again")
    path = folder / _SECRET_FILE
    if not path.exists():
        part = path.with_suffix(".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        part.replace(path)


def secret_of(folder: Path) -> bytes:
    """The secret; empty where it is gone: whoever only gives everything back needs none."""
    path = folder / _SECRET_FILE
    return path.read_bytes() if path.exists() else b""
