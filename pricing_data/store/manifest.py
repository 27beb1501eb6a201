"""The manifest: the list of files that make up the store. Replacing it commits a change.

Files are written under new names and never changed; a commit renames a new manifest over the old
one. If a writer dies, it leaves files that no manifest lists; the next writer deletes them. If the
manifest is lost, it is made again from the files, which describe themselves and each other.
"""

import json
import re
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pricing_data.atomic_write import move, sync
from pricing_data.errors import StoreError
from pricing_data.units import Span

FORMAT = 3
# Format 1 differs only in the segments, which say themselves how they are to be read; 3 has a
# number and a seal.
_READABLE = (1, 2, 3)
_UNSEALED = (1, 2)
NAME = "manifest.json"
_TEMPORARY = re.compile(r"manifest\.json\.[0-9a-f]{32}")
UNFINISHED = ".partial"
"""The end of the name of a file that belongs to no commit yet."""
_DATA = re.compile(r"[a-z_]+-[0-9a-f-]{32,}\.parquet")


class ManifestLost(StoreError):
    """The list of the store's files is missing or damaged, and the files are there."""


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
    """The store's state. `facts` maps a fact table to its file, `covered` a history to its complete
    span.

    `number` counts the commits. `replaced` are files whose rows are in other files now; they are
    deleted when possible.
    """

    segments: tuple[SegmentEntry, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    covered: dict[str, Span] = field(default_factory=dict)
    number: int = 0
    replaced: tuple[str, ...] = ()

    @property
    def files(self) -> set[str]:
        """The names of all files that this manifest lists."""
        names = {entry.name for entry in self.segments}
        facts = self.facts.values()
        return names | set(facts)

    def derived_kind(self, kind: str) -> str:
        """The beginning of the name of a file of figures that follow from all other files."""
        sources = sorted(self.files - {self.facts.get(kind)})
        return f"{kind}-{blake2b(' '.join(sources).encode(), digest_size=16).hexdigest()}"

    def derived(self, kind: str) -> str | None:
        """The file of these figures; None without one, or if another file has changed since."""
        name = self.facts.get(kind)
        if name is not None and name.startswith(self.derived_kind(kind)):
            return name
        return None

    def described(self, replaced: Collection[str], **holds: int) -> bytes:
        """How a new file describes the store and itself: the other files, what it replaces, and
        what it holds.
        """
        others = self.files - set(replaced)
        content = {
            "number": self.number,
            "others": sorted(others),
            "replaces": sorted(replaced),
            "covered": self.covered,
            **holds,
        }
        return json.dumps(content).encode()


def load(root: Path) -> Manifest:
    """The manifest of a store; an empty one if nothing has been written yet.

    Raises ManifestLost if there are files and no manifest, or a damaged one.
    """
    path = root / NAME
    try:
        return parsed(path.read_bytes(), path)
    except FileNotFoundError:
        if data_files(root):
            raise ManifestLost(f"price store: {path} is missing") from None
        return Manifest()
    except OSError as error:
        raise StoreError(f"price store: cannot read {path}: {error.strerror}") from error


def data_files(root: Path) -> list[str]:
    """The names of all files in the folder that may be part of a store."""
    try:
        names = (path.name for path in root.iterdir() if _DATA.fullmatch(path.name))
        return sorted(names)
    except FileNotFoundError:
        return []


def parsed(text: bytes, path: Path) -> Manifest:
    """A manifest from the text of its file."""
    try:
        content = json.loads(text)
        version = content["format"]
        seal = content.pop("seal", None)
        if isinstance(version, int) and version > FORMAT:
            raise StoreError(
                f"price store: {path} has format {version}, this spotctl reads {FORMAT}; upgrade "
                "spotctl"
            )
        if version not in _READABLE or (seal is None and version not in _UNSEALED):
            raise ValueError("its format or checksum is missing")
        if seal is not None and seal != _seal(content):
            raise ValueError("it does not match its checksum")
        segments = content["segments"]
        facts = content["facts"]
        covered = content["covered"]
        if not (
            isinstance(segments, list) and isinstance(facts, dict) and isinstance(covered, dict)
        ):
            raise TypeError("segments, facts or covered has another type")
        number = content.get("number", 0)
        replaced = tuple(content.get("replaced", ()))
        return Manifest(
            tuple(SegmentEntry(**entry) for entry in segments),
            facts,
            {history: Span(*span) for history, span in covered.items()},
            number,
            replaced,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestLost(damaged(path, error)) from error


def _seal(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    digest = blake2b(text.encode(), digest_size=16)
    return digest.hexdigest()


def damaged(path: Path, why: object) -> str:
    """The error message for a file of the store that cannot be parsed."""
    return (
        f"price store: {path} is damaged ({why}); restore it from a backup (spotctl lab prices ls "
        f"--check lists all that is damaged), or move {path.parent} away and import again"
    )


def save(root: Path, manifest: Manifest) -> None:
    """Replaces the store's manifest, durably and in one step; its unfinished files become files of
    the store.

    If the process dies in between, `remove_strays` finds the manifest that was not renamed, and
    with it those files.
    """
    content = {"format": FORMAT, **asdict(manifest)}
    content["seal"] = _seal(json.loads(json.dumps(content)))
    temporary = root / f"{NAME}.{uuid.uuid4().hex}"
    temporary.write_text(json.dumps(content, indent=1))
    sync(temporary)

    for name in manifest.files:
        with suppress(FileNotFoundError):
            move(root / (name + UNFINISHED), root / name)

    sync(root)

    move(temporary, root / NAME)
    sync(root)


def remove_strays(root: Path, manifest: Manifest) -> None:
    """Deletes what is certainly not part of the store: unfinished files, files of a commit that was
    not completed, and files that others replace. Any other file stays, even one that looks like the
    store's.

    Call it only while holding the write lock. The next writer retries a file that cannot be deleted
    now.
    """
    for path in root.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            # A damaged one names no file; so what it may have named stays, and `prices ls --check`
            # lists it.
            with suppress(OSError, StoreError):
                abandoned = parsed(path.read_bytes(), path)
                # The files that only this commit lists, which was not completed.
                stray = (
                    abandoned.files - manifest.files
                    if abandoned.number > manifest.number
                    else frozenset()
                )
                for name in stray:
                    _delete(root / name)
            _delete(path)
        elif path.name.endswith(f".parquet{UNFINISHED}") or path.name in manifest.replaced:
            _delete(path)


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
