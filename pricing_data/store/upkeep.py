"""Checks and copies of a whole store."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pricing_data.atomic_write import move, sync
from pricing_data.errors import BadInput, StoreError
from pricing_data.store import manifest as manifests
from pricing_data.store.manifest import Manifest, ManifestLost, SegmentEntry
from pricing_data.store.sealed import Origin, description_of, read_rows
from pricing_data.store.segments import PRICES, SegmentFile
from pricing_data.units import Span

_RESTORE = (
    "restore it from a backup; without one, move the store's folder away and import and fetch again"
)
_SET_ASIDE = "to go on without its prices: spotctl lab prices ls --check --set-aside"
_AGAIN = "the next import or fetch makes it again"
_AWAY = "no price is read from it: move it away, or restore the manifest.json that belongs to it"


@dataclass(frozen=True, slots=True)
class Flaw:
    """A file of the store that is not as it should be, why, and what to do."""

    file: str
    problem: str
    cure: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}; {self.cure}"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of reading every byte of a store."""

    files: int
    events: int
    flaws: tuple[Flaw, ...]


def inspect(root: Path) -> Inspection:
    """Reads every file of a store."""
    flaws: list[Flaw] = []
    try:
        manifest = manifests.load(root)
    except ManifestLost as lost:
        manifest = rebuilt(root)
        again = f"{_AGAIN}, from the other files"
        flaw = Flaw(
            manifests.NAME,
            _problem(root / manifests.NAME, lost),
            again if manifest.files else _RESTORE,
        )
        flaws.append(flaw)

    events = 0
    for entry in manifest.segments:
        count, problem = _inspected(root, entry)
        events += count
        flaws += [Flaw(entry.name, problem, f"{_RESTORE}; {_SET_ASIDE}")] if problem else []

    for name in manifest.facts.values():
        try:
            read_rows(root / name)
        except (StoreError, FileNotFoundError) as error:
            origin = Origin.of(name)
            cure = _AGAIN if origin and origin.derived else _RESTORE
            flaws.append(Flaw(name, _problem(root / name, error), cure))

    stored = manifests.data_files(root)
    unknown = sorted(set(stored) - manifest.files - set(manifest.replaced))
    flaws += [Flaw(name, "is not in manifest.json", _AWAY) for name in unknown]
    return Inspection(len(manifest.files), events, tuple(flaws))


def damaged_segments(root: Path, manifest: Manifest) -> list[SegmentEntry]:
    """The segments that cannot be read in full."""
    return [entry for entry in manifest.segments if _inspected(root, entry)[1]]


def _inspected(root: Path, entry: SegmentEntry) -> tuple[int, str]:
    """The number of events that a segment adds, and what is wrong with it, if anything is."""
    try:
        with SegmentFile(root / entry.name) as segment:
            segment.check()
            if (segment.rows, segment.corrections) != (entry.rows, entry.corrections):
                raise ValueError(f"it has {segment.rows} rows, manifest.json says {entry.rows}")
            return segment.rows - segment.corrections, ""
    except (StoreError, FileNotFoundError, TypeError, ValueError) as error:
        return 0, _problem(root / entry.name, error)


def _problem(path: Path, error: Exception) -> str:
    """The problem without the file's name and the cure, as a flaw has its own."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    first_part = str(error).partition("; restore it")
    problem = first_part[0].removeprefix(f"price store: {path} ")
    if isinstance(error, StoreError):
        return problem
    return f"is damaged ({problem})"


def copy(root: Path, manifest: Manifest, to: Path) -> Inspection:
    """Copies a store to a new folder, and checks the copy. The caller holds the write lock.

    A copy that is cut off or not sound never has the name `to`.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise BadInput(f"backup: {to} exists already; name a new folder")

    unfinished = to.with_name(f".{to.name}.partial")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name in sorted(manifest.files):
            shutil.copyfile(root / name, unfinished / name)
            sync(unfinished / name)
        manifests.save(unfinished, manifest)
        inspection = inspect(unfinished)
        if inspection.flaws:
            raise StoreError(f"price store: no backup was made: {inspection.flaws[0]}")
        # Replaces an empty folder, too.
        move(unfinished, to)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)

    return inspection


def rebuilt(root: Path) -> Manifest:
    """The manifest of the newest commit whose files are there, or of all files if none describes
    itself.

    Files that this commit names and that are missing stay in the manifest, so that reading them is
    an error. Covered spans may be those of an earlier commit: a fetch then repeats what it has,
    which changes nothing.
    """
    names = manifests.data_files(root)
    origins = {name: origin for name in names if (origin := Origin.of(name))}
    described: dict[str, dict[str, Any]] = {}
    newest = 0

    for name, origin in sorted(origins.items(), key=lambda item: -item[1].number):
        if origin.number < newest:
            break
        try:
            described[name] = description_of(root / name)
            newest = origin.number
        except StoreError:
            # Its name says that it is part of the store, and reading it will say that it is
            # damaged.
            continue

    if not described:
        return _of_names(root, names, 0, {})

    later = {name for name, origin in origins.items() if origin.number >= newest}
    others = {name for description in described.values() for name in description["others"]}
    replaced = {name for description in described.values() for name in description["replaces"]}
    covered = {
        key: Span(*span) for each in described.values() for key, span in each["covered"].items()
    }
    highest = max(origin.number for origin in origins.values())

    return _of_names(root, (later | others) - replaced, highest, covered)


def _of_names(root: Path, names: Iterable[str], number: int, covered: dict[str, Span]) -> Manifest:
    segments: list[SegmentEntry] = []
    facts: dict[str, str] = {}
    for name in sorted(names, key=_number_of):
        kind = name.partition("-")[0]
        if kind == PRICES:
            path = root / name
            try:
                with SegmentFile(path) as segment:
                    times = segment.read().times
                    first, last = (int(times.min()), int(times.max())) if times.size else (0, 0)
                    size = path.stat().st_size
                    figures = (segment.rows, size, first, last, segment.corrections)
            except (StoreError, FileNotFoundError):
                # Without figures, so that reading reports what is missing or damaged.
                figures = (0, 0, *_ALWAYS, 0)
            segments.append(SegmentEntry(name, *figures))
        elif kind in facts and _number_of(name) == _number_of(facts[kind]):
            raise StoreError(
                f"price store: the list of files is lost, and both {facts[kind]} and {name} may be "
                "the newest; move the older one away"
            )
        else:
            facts[kind] = name

    return Manifest(tuple(segments), facts, covered, number)


def _number_of(name: str) -> int:
    origin = Origin.of(name)
    return origin.number if origin else 0


_ALWAYS = (-(1 << 62), 1 << 62)
"""A span that no reader skips."""
