"""The manifest: the list of files that make up the store. Replacing it commits a change.

Segments are written under new names and never changed; a commit renames a new manifest over the old one. If a writer
dies, it leaves files that no manifest lists; the next writer deletes them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from pricing_data.errors import StoreError
from pricing_data.units import Span

FORMAT = 2
# Format 1 differs only in the segments, which say themselves how they are to be read.
_READABLE = (1, 2)
_NAME = "manifest.json"
# The names of files that writers create: tables, and manifests not yet renamed.
_OURS = re.compile(r"[a-z_]+-[0-9a-f]{32}\.parquet|manifest\.json\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment file, with the time span that lets readers skip it.

    `corrections` of its rows replace lower prices of the same market and time in other segments.
    """

    name: str
    rows: int
    bytes: int
    first: int
    last: int
    corrections: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """The store's state. `facts` maps a fact table to its file, `covered` a history to its complete span."""

    segments: tuple[SegmentEntry, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    covered: dict[str, Span] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        """The names of all files that this manifest lists."""
        return {entry.name for entry in self.segments} | set(self.facts.values())

    def derived_name(self, kind: str) -> str:
        """The name of a file of figures that follow from all other files."""
        sources = sorted(self.files - {self.facts.get(kind)})
        return f"{kind}-{blake2b(' '.join(sources).encode(), digest_size=16).hexdigest()}.parquet"

    def with_fact(self, table: str, name: str) -> Manifest:
        """A copy with another file for a fact table."""
        return replace(self, facts={**self.facts, table: name})


def load(root: Path) -> Manifest:
    """The manifest of a store; an empty one if none has been written yet."""
    path = root / _NAME
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise StoreError(f"price store: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(damaged(path, error)) from error
    try:
        return _parsed(json.loads(text), path)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(damaged(path, error)) from error


def _parsed(content: dict[str, object], path: Path) -> Manifest:
    version = content["format"]
    if version not in _READABLE:
        raise StoreError(f"price store: {path} has format {version}, this spotctl reads {FORMAT}; upgrade spotctl")
    segments, facts, covered = content["segments"], content["facts"], content["covered"]
    if not (isinstance(segments, list) and isinstance(facts, dict) and isinstance(covered, dict)):
        raise TypeError("segments, facts or covered has another type")
    return Manifest(
        tuple(SegmentEntry(**entry) for entry in segments),
        facts,
        {history: Span(*span) for history, span in covered.items()},
    )


def damaged(path: Path, why: object) -> str:
    """The error message for a file of the store that cannot be parsed."""
    return f"price store: {path} is damaged ({why}); move {path.parent} away and import again"


def save(root: Path, manifest: Manifest) -> None:
    """Replaces the store's manifest, durably and in one step."""
    content = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1)
    temporary = root / f"{_NAME}.{uuid.uuid4().hex}"
    try:
        with temporary.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(root / _NAME)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(root)


def sync(path: Path) -> None:
    """Flushes a file to disk before a manifest lists it, so that a power failure cannot empty it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_directory(root: Path) -> None:
    handle = os.open(root, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_strays(root: Path, manifest: Manifest) -> None:
    """Deletes the store's files that the manifest does not list: replaced ones, and those of a writer that died.

    Other files in the folder stay. Call it only while holding the write lock. The next writer retries a file that
    cannot be deleted now.
    """
    for path in root.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in manifest.files:
            with suppress(OSError):
                path.unlink()


@contextmanager
def exclusively(root: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the store's write lock; the system releases it if the process dies."""
    with (root / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
