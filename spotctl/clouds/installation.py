"""The installation's id, a tag on everything that a home buys, so that two homes can share one cloud account."""

from __future__ import annotations

import secrets
from pathlib import Path

from spotctl.clouds.owner_only import read_or_create


def installation_id(home: Path) -> str:
    """The home's id, made once; it is kept when the home is moved."""
    return read_or_create(home / "installation", secrets.token_hex(8).encode()).decode().strip()
