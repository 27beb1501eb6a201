"""`KnownDigests`: the digests of a folder's files, kept so that only files that have changed are read again."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agileml.runtime.blob_store import file_pieces
from spotctl.agent.files import replace_json

_SAVE_SECONDS = 30.0
_SETTLED_NS = 2 * 10**9
"""A file that changed this shortly before it was read may change again within the same tick of the file system's clock:
it is read again the next time."""

_KEY_DIGITS = 24


class DataChanged(Exception):
    """A file changed, or went away, while it was read."""


class KnownDigests:
    """The digests of one folder, in a file below `home`. A file counts as unchanged with the same size, number and
    times, of which no program can set that of its last change."""

    def __init__(self, home: Path, folder: Path, is_stopped: Callable[[], None]) -> None:
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:_KEY_DIGITS]
        self._file, self._check = home / "digests" / f"{key}.json", is_stopped
        self._known: dict[str, list[object]] = {}
        self._met: dict[str, list[object]] = {}
        self._saved_at = time.monotonic()
        # A damaged file costs time: all is read again.
        with suppress(OSError, ValueError, TypeError):
            self._known = dict(json.loads(self._file.read_bytes()))

    def digest(self, name: str, path: Path, status: os.stat_result) -> str:
        """The SHA-256 of a file. DataChanged: it changes meanwhile."""
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        known = self._known.get(name)
        if known is not None and known[:-1] == stamp:
            self._met[name] = known
            return str(known[-1])
        read_at, hashed, size = time.time_ns(), hashlib.sha256(), 0
        for piece in file_pieces(path):
            self._check()
            hashed.update(piece)
            size += len(piece)
        if size != status.st_size:
            raise DataChanged(os.fspath(path))
        if max(status.st_mtime_ns, status.st_ctime_ns) < read_at - _SETTLED_NS:
            self._known[name] = self._met[name] = [*stamp, hashed.hexdigest()]
        if time.monotonic() > self._saved_at + _SAVE_SECONDS:
            self._save(self._known)
        return hashed.hexdigest()

    def keep(self) -> None:
        """Stores what is known of the files that were met; the others are gone."""
        self._save(self._met)

    def _save(self, values: dict[str, list[object]]) -> None:
        # Without room for the file, the next launch reads all again.
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_json(self._file, dict(values))
        self._saved_at = time.monotonic()
