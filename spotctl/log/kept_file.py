"""A file next to the log that keeps what was computed from it, so that later commands need not read all events again.

It is believed only if it is whole, and was written by the very code that reads it; it can be deleted at any time.
"""

import shutil
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec

import bidbrain
import pricing_data
from pricing_data.atomic_write import WriteFailed, atomic_write
from pricing_data.errors import PricingDataError
from spotctl.home.paths import PACKAGE

MIN_FREE_BYTES = 256 << 20
"""Disk space that stays free for what runs must write."""

_CODE_FOLDERS = (
    *(PACKAGE / folder for folder in ("log", "log/ledger", "files/job", "show/costs", "show/runs")),
    Path(bidbrain.__path__[0], "billing"),
    Path(pricing_data.__path__[0]),
)
"""Folders with the code that computes from events what is kept."""

KeptT = TypeVar("KeptT")


def read_kept(path: Path, kind: type[KeptT]) -> KeptT | None:
    """The content of a file; None if the file is damaged or comes from other code."""
    with suppress(OSError, msgspec.MsgspecError):
        head, _, content = path.read_bytes().partition(b"\n")
        if head == _head(content):
            # The head matches only what this very code wrote, so the content needs no further check.
            return msgspec.json.decode(content, type=kind, dec_hook=lambda value, text: value(text))
    return None


def keep(path: Path, value: object) -> None:
    """Writes a file, if there is room for it."""
    with suppress(OSError, OverflowError, UnicodeError, WriteFailed, PricingDataError):
        if shutil.disk_usage(path.parent).free < MIN_FREE_BYTES:
            return
        content = msgspec.json.encode(value, enc_hook=str)
        with atomic_write(path) as out:
            out.write_bytes(_head(content) + b"\n" + content)


def _head(content: bytes) -> bytes:
    return f"{_code()} {blake2b(content, digest_size=16).hexdigest()}".encode()


@cache
def _code() -> str:
    digest = blake2b(digest_size=16)
    for folder in _CODE_FOLDERS:
        # An installation may be without sources; one in an archive raises OSError here, and nothing is kept.
        for path in sorted(folder.iterdir()):
            if path.suffix in (".py", ".pyc"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
