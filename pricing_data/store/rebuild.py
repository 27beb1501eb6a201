"""A lost manifest, made again from the store's files, each of which names the others of its time."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pricing_data.errors import StoreError
from pricing_data.store import manifest as manifests
from pricing_data.store.manifest import Manifest, SegmentEntry
from pricing_data.store.sealed import Origin, description_of
from pricing_data.store.segments import SegmentFile
from pricing_data.units import Span

PRICES = "prices"


def rebuilt(root: Path) -> Manifest:
    """The manifest of the newest commit whose files are there, or of all files if none describes itself.

    Files that this commit names and that are missing stay in the manifest, so that reading them is an error. Covered
    spans may be those of an earlier commit: a fetch then repeats what it has, which changes nothing.
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
            continue  # Its name says that it is part of the store, and reading it will say that it is damaged.
    if not described:
        return _of_names(root, names, 0, {})
    later = {name for name, origin in origins.items() if origin.number >= newest}
    others = {name for description in described.values() for name in description["others"]}
    replaced = {name for description in described.values() for name in description["replaces"]}
    covered = {key: Span(*span) for each in described.values() for key, span in each["covered"].items()}
    highest = max(origin.number for origin in origins.values())
    return _of_names(root, (later | others) - replaced, highest, covered)


def _of_names(root: Path, names: Iterable[str], number: int, covered: dict[str, Span]) -> Manifest:
    segments: list[SegmentEntry] = []
    facts: dict[str, str] = {}
    for name in sorted(names, key=_number):
        kind = name.partition("-")[0]
        if kind == PRICES:
            segments.append(_entry(root / name))
        elif kind in facts and _number(name) == _number(facts[kind]):
            raise StoreError(
                f"price store: the list of files is lost, and both {facts[kind]} and {name} may be the newest; move the"
                " older one away"
            )
        else:
            facts[kind] = name
    return Manifest(tuple(segments), facts, covered, number)


def _number(name: str) -> int:
    origin = Origin.of(name)
    return origin.number if origin else 0


def _entry(path: Path) -> SegmentEntry:
    """A segment's entry; without figures if its file is missing or damaged, so that reading reports that."""
    try:
        with SegmentFile(path) as segment:
            times = segment.read().times
            first, last = (int(times.min()), int(times.max())) if times.size else (0, 0)
            return SegmentEntry(path.name, segment.rows, path.stat().st_size, first, last, segment.corrections)
    except (StoreError, FileNotFoundError):
        return SegmentEntry(path.name, 0, 0, *_ALWAYS)


_ALWAYS = (-(1 << 62), 1 << 62)
"""A span that no reader skips."""
