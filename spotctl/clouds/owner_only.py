"""Files for their owner's eyes only: written once, the same for every process that asks."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


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
