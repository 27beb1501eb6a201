"""The installation: the id of a home in cloud accounts, the tags of what it rents, and files for its owner only."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

INSTALLATION_TAG, RUN_TAG, INTENT_TAG = "spotctl-installation", "spotctl-run", "spotctl-intent"
"""The installation (`spotctl.home.installation`) and the run that rented a machine, and the number of the intent
in that run's log."""


@dataclass(frozen=True, slots=True)
class ShownMachine:
    """A machine of this installation that a provider shows."""

    id: str
    """Id of the machine."""
    run: str
    """Run for which it was rented."""
    market: str
    """Its market."""


def installation_id(home: Path) -> str:
    """The home's id, made once; it is kept when the home is moved."""
    return read_or_create(home / "installation", secrets.token_hex(8).encode()).decode().strip()


def read_or_create(path: Path, content: bytes) -> bytes:
    """The content of a file; the first process to ask creates it with `content`. Only its owner can read it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where another process was first; a rename would replace its file.
        path.hardlink_to(part)
    except FileExistsError:
        pass
    finally:
        part.unlink()
    return path.read_bytes()
