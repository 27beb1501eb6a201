"""The rows that a repair writes for those it drops, so that no sum passes for whole, and no run
vanishes. Pure.

The index of the log says which run a row belongs to, even if the row itself cannot be read. If it
does not say so, the row may be of any run that had begun and not ended, or of a run that left
nothing else.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from math import inf

from spotctl.home.cloud import is_replayed
from spotctl.log.event_json import to_json
from spotctl.log.events import (
    KINDS,
    Event,
    RentIntended,
    RowsLost,
    RunBegan,
    RunEnded,
    RunResumed,
    StopRequested,
)
from spotctl.log.outcomes import FAILED, STOPPED
from spotctl.log.schema import checksum, link_of
from spotctl.log.state import LogRow

LOST = "rows of the run's event log were damaged and are lost"
_UNKNOWN_PROGRAM = "false  # the job's own program is lost with its beginning"
_RUN = re.compile(r"(.+)-[0-9a-f]{6}")
_WITH_WALL_CLOCK = {kind.__name__ for kind in (RunBegan, RunResumed, RunEnded)}


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it is stored; unless `sound`, it says something else than its checksum."""

    id: int
    run: str
    at: int
    kind: str
    body: str
    sound: bool = True
    number: int | None = None
    link: int | None = None


@dataclass(frozen=True, slots=True)
class RawLog:
    """The readable part of a log: its rows, the run of each row by the index, which may have more
    rows, the number of the last row that was written (0: unknown), why the rest cannot be read, and
    how many rows each run has written, as far as they were numbered."""

    rows: tuple[RawRow, ...] = ()
    run_of: Mapping[int, str] = field(default_factory=dict)
    last: int = 0
    failure: str = ""
    written: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost rows of a run, or of unknown runs if `run` is empty: their positions in the damaged
    log."""

    run: str
    positions: Sequence[int]
    kinds: tuple[str, ...] = ()


def rows_written(rows: Sequence[LogRow]) -> int:
    """How many rows of a run have been written to a log: those that it has, without those of a
    repair, and those that a repair has dropped."""
    of_repair = dropped = 0
    for row in rows:
        match row.event:
            case RowsLost(rows=lost):
                of_repair += 1
                dropped += lost
            case StopRequested(message=message) | RunEnded(message=message):
                of_repair += message == LOST
            case RunBegan(spec=spec):
                of_repair += spec.get("run") == _UNKNOWN_PROGRAM

    return len(rows) - of_repair + dropped


def foreign_rows(raw: RawLog) -> set[int]:
    """The positions of numbered rows that do not follow the row before them in their run, though
    that row is there, or that their run has twice or has not written."""
    rows = dict[tuple[str, int], list[RawRow]]()
    for row in raw.rows:
        if row.number is not None:
            rows.setdefault((row.run, row.number), []).append(row)

    foreign = set[int]()
    link_before = dict[tuple[str, int], int | None]()
    for (run, number), same in sorted(rows.items()):
        before = 0 if number == 1 else link_before.get((run, number - 1))
        contents = {row.id: checksum(row.run, row.at, row.kind, row.body) for row in same}
        own: RawRow | None = None
        for row in same:
            if before is None or row.link == link_of(before, number, contents[row.id]):
                own = row
                break

        link_before[run, number] = same[0].link if own is None else own.link
        most = raw.written.get(run, number)
        for row in same:
            # The rows of a run have other positions than those of its earlier rows, so no number
            # exceeds its position.
            is_own = row is own and 1 <= number <= min(most, row.id)
            if row.sound and not is_own:
                foreign.add(row.id)

    return foreign


def misnumbered_runs(raw: RawLog, usable: Iterable[RawRow]) -> set[str]:
    """The runs whose usable rows do not have the numbers from 1 to that of the last row that the
    run wrote.
    """
    numbers = {run: list[int]() for run in raw.written}
    for row in usable:
        if row.number is not None:
            numbers.setdefault(row.run, []).append(row.number)

    misnumbered = set[str]()
    for run, counted in numbers.items():
        expected = list(range(1, len(counted) + 1))
        if len(counted) != raw.written.get(run) or sorted(counted) != expected:
            misnumbered.add(run)
    return misnumbered


def losses_of(raw: RawLog, unusable: Sequence[RawRow]) -> list[Loss]:
    """The losses: rows that are missing, and those that cannot be used.

    The numbers of a run's rows say how many are lost between which positions, where the log has
    numbers; otherwise the index, which has the run of each row, or the row itself.
    """
    usable = {row.id for row in raw.rows}.difference(row.id for row in unusable)
    end = max([raw.last, *(row.id for row in raw.rows), *raw.run_of], default=0) + 1
    free = sorted(set(range(1, end)) - usable)

    # The runs of lost rows, as far as the index or the row says it.
    runs = {row.run for row in raw.rows if row.sound}.union(raw.run_of.values(), raw.written)
    there = {row.id for row in raw.rows}
    owner = {position: run for position, run in raw.run_of.items() if position not in there}
    for row in unusable:
        run = row.run if row.sound else raw.run_of.get(row.id, row.run)
        owner[row.id] = run if run in runs else ""

    of_run = _of_chains(raw, usable, free, owner)

    # Numbered rows whose chains lack none are foreign, and their loss is none.
    known = {row.id for row in unusable if row.number is not None}
    known.update(*of_run.values())
    for position in free:
        if position in owner and position not in known:
            of_run.setdefault(owner[position], []).append(position)

    known.update(owner)
    kind_of = {row.id: row.kind for row in unusable if row.kind in KINDS}
    losses = list[Loss]()
    for run, positions in of_run.items():
        in_order = sorted(positions)
        kinds = dict.fromkeys(kind_of[at] for at in in_order if at in kind_of)
        losses.append(Loss(run, in_order, tuple(kinds)))

    # Rows of unknown runs.
    rest = [position for position in free if position not in known]
    for _, part in groupby(enumerate(rest), lambda numbered: numbered[1] - numbered[0]):
        losses.append(Loss("", [position for _, position in part]))
    if raw.failure and not raw.last and not raw.run_of:
        # Nothing says how many rows there were.
        losses.append(Loss("", [end]))

    return losses


def _of_chains(
    raw: RawLog, usable: Collection[int], free: Sequence[int], owner: Mapping[int, str]
) -> dict[str, list[int]]:
    """The positions of the rows that chains lack. Each is between those of its neighbors; those at
    which the index or a row names the run are taken first."""
    own = dict[str, list[int]]()
    others = list[int]()
    for at in free:
        own.setdefault(owner.get(at, ""), []).append(at)
    missing = dict[str, list[int]]()
    open_slots = list[tuple[float, int, str]]()

    for run, slots in _slots(raw, usable).items():
        named: Iterator[float] = iter(own.pop(run, ()) if run else ())
        position = next(named, inf)
        for before, after in slots:
            while position < before:
                others.append(int(position))
                position = next(named, inf)
            if position >= after:
                open_slots.append((after, before, run))
            else:
                missing.setdefault(run, []).append(int(position))
                position = next(named, inf)
        others += [int(left) for left in (position, *named) if left < inf]

    rest = sorted([*others, *chain.from_iterable(own.values())])
    for after, before, run in sorted(open_slots):
        place = bisect_right(rest, before)
        if place < len(rest) and rest[place] < after:
            missing.setdefault(run, []).append(rest.pop(place))

    return missing


def _slots(raw: RawLog, usable: Collection[int]) -> dict[str, list[tuple[int, float]]]:
    """For each row that the chain of a run lacks, the positions of the rows before and after it."""
    position_of: dict[str, dict[int, int]] = {run: {} for run in raw.written}
    for row in raw.rows:
        if row.number is not None and row.id in usable:
            position_of.setdefault(row.run, {})[row.number] = row.id

    slots = dict[str, list[tuple[int, float]]]()
    for run, positions in position_of.items():
        last = max([raw.written.get(run, 0), *positions])
        ends: list[tuple[int, float]] = [(0, 0), *sorted(positions.items()), (last + 1, inf)]
        slots[run] = []
        for (number, before), (later, after) in pairwise(ends):
            lacking = later - number - 1
            slots[run] += [(int(before), after)] * lacking

    return slots


def left(usable: Sequence[RawRow], losses: Sequence[Loss], now: int) -> list[RawRow]:
    """The rows that a damaged log has left: the usable ones, a beginning for each run, and marks of
    what is lost at the end."""
    runs = dict[str, list[RawRow]]()
    for row in usable:
        runs.setdefault(row.run, []).append(row)
    whole = list(usable)

    # The number that a beginning would have had, of the runs whose first row is lost.
    first_of = {
        run: rows[0].id for run, rows in runs.items() if run and rows[0].kind != RunBegan.__name__
    }
    first_of |= {
        loss.run: loss.positions[0] for loss in losses if loss.run and loss.run not in runs
    }
    for run, first in first_of.items():
        whole.append(_beginning(run, first, runs.get(run, ()), usable))
    whole.sort(key=lambda row: (row.id, row.kind != RunBegan.__name__))

    for loss in losses:
        first = loss.positions[0]
        last = loss.positions[-1]
        # The runs that the loss may concern; empty text stands for a run that left nothing else.
        going = dict[str, None]()
        for row in () if loss.run else usable:
            if row.id < first and row.run:
                if row.kind == RunEnded.__name__:
                    going.pop(row.run, None)
                elif row.kind == RunBegan.__name__:
                    going[row.run] = None

        for run in [loss.run] if loss.run else [*going, ""]:
            rows = runs.get(run, ())
            if not run:
                since, until = _wall(usable, first, now)
                at = until
            else:
                before = [row.at for row in rows if row.id < first]
                later = [row.at for row in rows if row.id > last]
                at = max([row.at for row in rows], default=_wall(usable, first)[0])
                since = max(before, default=min(later, default=at))
                until = min(later, default=at)
            mark = RowsLost(len(loss.positions), first, last, since, until, loss.kinds)
            whole.append(_raw(run, at, mark))

    return whole


def repaired(usable: Sequence[RawRow], losses: Sequence[Loss], now: int) -> list[RawRow]:
    """The rows of the repaired log: those that are left, and for each run that has lost rows and
    has not ended an end if a later run of the job has begun, else a request to end.
    """
    whole = left(usable, losses, now)
    newest = dict[str, RawRow]()
    job_of = dict[str, str]()
    for row in whole:
        if row.kind == RunBegan.__name__:
            job = json.loads(row.body)["job"]
            newest[job] = row
            job_of[row.run] = job

    ends = list[RawRow]()
    for run in dict.fromkeys(row.run for row in whole if not row.id and row.run):
        rows = [row for row in whole if row.run == run]
        if any(row.kind == RunEnded.__name__ for row in rows):
            continue
        at = max(row.at for row in rows)
        later = newest[job_of[run]]
        if later.run == run:
            ends.append(_raw(run, at, StopRequested(FAILED, LOST)))
        else:
            wall = json.loads(later.body)["wall_us"]
            ends.append(_raw(run, at, RunEnded(STOPPED, LOST, wall)))

    return [*whole, *ends]


def _beginning(run: str, first: int, rows: Sequence[RawRow], usable: Sequence[RawRow]) -> RawRow:
    """A beginning that says what the other rows show: the name of the job, and on which clouds the
    run rented.
    """
    named = _RUN.fullmatch(run)
    job = named[1] if named else run
    clouds = list[str]()
    for row in rows:
        if row.kind == RentIntended.__name__:
            cloud, _, _ = json.loads(row.body)["market"].partition("/")
            if cloud not in clouds:
                clouds.append(cloud)

    if not clouds:
        # Those of another run, of the same job if there is one; a run without orders has rented
        # nothing anyway.
        clouds = ["local"]
        is_of_job = False
        for row in usable:
            if row.kind == RunBegan.__name__:
                began = json.loads(row.body)
                if began["job"] == job or not is_of_job:
                    clouds = began["provider"].split("+")
                is_of_job = is_of_job or began["job"] == job

    spec = {"name": job, "kind": "command", "run": _UNKNOWN_PROGRAM}
    wall, _ = _wall(rows or usable, first)
    at = wall
    if rows:
        at = rows[0].at
        if not is_replayed(clouds[0]):
            wall = at

    began = RunBegan(job, "+".join(clouds), {**spec, "resources": {"clouds": clouds}}, "", wall)
    return _raw(run, at, began, first)


def _wall(rows: Iterable[RawRow], position: int, otherwise: int = 0) -> tuple[int, int]:
    """This computer's time at the rows before and after a position, as far as rows say it."""
    known = [
        (row.id, int(json.loads(row.body)["wall_us"]))
        for row in rows
        if row.kind in _WITH_WALL_CLOCK
    ]

    earliest = min((at for _, at in known), default=0)
    before = [at for number, at in known if number < position]
    later = [at for number, at in known if number > position]
    since = max(before, default=earliest)
    until = min(later, default=max(otherwise, since))
    return since, until


def _raw(run: str, at: int, event: Event, id_: int = 0) -> RawRow:
    return RawRow(id_, run, at, type(event).__name__, to_json(event))
