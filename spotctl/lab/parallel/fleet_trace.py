"""Recorded fleets: which machines were there when."""

import csv
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from agileml.pipeline.elastic.fleet_replay import FleetChange
from pricing_data.sources.observations import read_availability
from spotctl.home.errors import BadRequest

_HEADER = "time_s"
_ADD, _REMOVE = "add", "remove"


def read_fleet(path: Path) -> list[FleetChange]:
    """The changes of a fleet in order of time; the last one may be empty, and is the end of the record.

    A CSV has rows `time,add,NAMES` and `time,remove,NAMES`: either seconds, names separated by `|` and a header, or
    milliseconds and one name, without a header. JSON is an availability trace, as `spotctl lab backtest deadline` reads
    it.
    """
    if ".json" in path.suffixes:
        return _of_counts(path)
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8").splitlines()) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read: {error}") from None
    by_time: dict[float, tuple[list[str], list[str]]] = {}
    for at, kind, names in _events(path, rows):
        moment = by_time.setdefault(at, ([], []))
        moment[kind == _REMOVE].extend(names)
    fleet = [FleetChange(at, tuple(added), tuple(gone)) for at, (added, gone) in sorted(by_time.items())]
    _check(path, fleet)
    return fleet


def _events(path: Path, rows: list[list[str]]) -> Iterator[tuple[float, str, list[str]]]:
    has_header = bool(rows) and rows[0][0] == _HEADER
    scale = 1.0 if has_header else 1e3
    for row in rows[has_header:]:
        try:
            at, (kind, names) = float(row[0]) / scale, row[1:3]
        except ValueError:
            at, kind, names = -1.0, "", ""
        changes = kind in (_ADD, _REMOVE)
        # Recorders also note their own actions, such as migrations, without machines.
        if not isfinite(at) or at < 0 or not kind or changes != bool(names):
            raise BadRequest(
                f"{path}: {','.join(row)!r} is no change of a fleet; expected a time, add or remove, and names"
            )
        yield at, kind, names.split("|") if names else []


def _check(path: Path, fleet: list[FleetChange]) -> None:
    there: set[str] = set()
    for change in fleet:
        for name in change.removed:
            if name not in there:
                raise BadRequest(f"{path}: {name} is removed at {change.at:g} s, and was not there; add it before")
        there = (there - set(change.removed)) | set(change.added)
    if len(fleet) < 2:
        raise BadRequest(f"{path}: a fleet needs changes at two times or more; the last one ends the record")


def _of_counts(path: Path) -> list[FleetChange]:
    """The machines that came last go first."""
    trace = read_availability(path)
    there: list[str] = []
    fleet, named = [], 0
    for tick, up in enumerate(trace.up.tolist()):
        gone = tuple(there[up:])
        added = tuple(f"m{named + i}" for i in range(max(up - len(there), 0)))
        named += len(added)
        there = [*there[:up], *added]
        if gone or added or tick in (0, len(trace) - 1):
            fleet.append(FleetChange(float(tick * trace.gap_seconds), added, gone))
    _check(path, fleet)
    return fleet
