"""The installation: the id of a home in cloud accounts, the tags of what it rents, and files for
its owner only.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agileml.runtime.ground import replaced

INSTALLATION_TAG, RUN_TAG, INTENT_TAG = "spotctl-installation", "spotctl-run", "spotctl-intent"
"""The installation (`spotctl.home.installation`) and the run that rented a machine, and the number
of the intent in that run's log."""


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
    """The content of a file; the first process to ask creates it with `content`. Only its owner can
    read it.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass

    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be first: then its file stays.
    with suppress(FileExistsError), replaced(path, lasting=True, over=False) as new:
        new.touch(0o600)
        new.write_bytes(content)
    return path.read_bytes()
