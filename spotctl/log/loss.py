"""The rows that a repair writes for those it drops, so that no sum passes for whole, and no run vanishes. Pure.

The index of the log says of which run a row was, even if the row itself cannot be read. If the index does not say it,
the row may be of any run that had begun and not ended, or of a run that left nothing else.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spotctl.home.cloud import is_replayed
from spotctl.log.event_json import to_json
from spotctl.log.events import KINDS, Event, RentIntended, RowsLost, RunBegan, RunEnded, RunResumed, StopRequested
from spotctl.log.log_row import LogRow
from spotctl.log.outcomes import FAILED, STOPPED
from spotctl.log.raw_log import RawLog, RawRow

LOST = "rows of the run's event log were damaged and are lost"
_UNKNOWN_PROGRAM = "false  # the job's own program is lost with its beginning"
_RUN = re.compile(r"(.+)-[0-9a-f]{6}")
_WITH_WALL_CLOCK = {kind.__name__ for kind in (RunBegan, RunResumed, RunEnded)}


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost rows of a run, or of unknown runs if `run` is empty."""

    run: str
    rows: int
    first: int
    last: int
    kinds: tuple[str, ...] = ()


def rows_written(rows: Sequence[LogRow]) -> int:
    """How many rows of a run have been written to a log: those that it has, without those of a repair, and those that a
    repair has dropped."""
    own = sum(_is_of_repair(row.event) for row in rows)
    return len(rows) - own + sum(row.event.rows for row in rows if isinstance(row.event, RowsLost))


def _is_of_repair(event: Event) -> bool:
    match event:
        case RowsLost():
            return True
        case StopRequested(message=message) | RunEnded(message=message):
            return message == LOST
        case RunBegan(spec=spec):
            return spec.get("run") == _UNKNOWN_PROGRAM
        case _:
            return False


def losses_of(raw: RawLog, unusable: Sequence[RawRow]) -> list[Loss]:
    """The losses: rows that are missing, and those that cannot be used."""
    there = {row.id for row in raw.rows}
    known = {row.run for row in raw.rows if row.sound}.union(raw.run_of.values())
    lost = [(id_, run, "") for id_, run in raw.run_of.items() if id_ not in there]
    for row in unusable:
        run = row.run if row.sound else raw.run_of.get(row.id, row.run)
        lost.append((row.id, run if run in known else "", row.kind if row.kind in KINDS else ""))
    by_run = dict[str, list[tuple[int, str]]]()
    for id_, run, kind in sorted(lost):
        by_run.setdefault(run, []).append((id_, kind))
    return [*(_loss(run, rows) for run, rows in by_run.items()), *_gaps(raw, there)]


def _loss(run: str, rows: Sequence[tuple[int, str]]) -> Loss:
    kinds = tuple(dict.fromkeys(kind for _, kind in rows if kind))
    return Loss(run, len(rows), rows[0][0], rows[-1][0], kinds)


def _gaps(raw: RawLog, there: set[int]) -> Iterator[Loss]:
    """Rows that are missing and not in the index. Rows are numbered without gaps."""
    end = max([raw.last, *there, *raw.run_of], default=0) + 1
    known = sorted(there.union(raw.run_of))
    for before, after in pairwise((0, *known, end)):
        if after - before > 1:
            yield Loss("", after - before - 1, before + 1, after - 1)
    if raw.failure and not raw.last and not raw.run_of:
        # Nothing says how many rows there were.
        yield Loss("", 1, end, end)


def repaired(usable: Sequence[RawRow], losses: Sequence[Loss], now: int) -> list[RawRow]:
    """The rows of the repaired log: the usable ones, a beginning for each run, and marks of what is lost at the end."""
    runs = dict[str, list[RawRow]]()
    for row in usable:
        runs.setdefault(row.run, []).append(row)
    whole = list(usable)
    for run, first in _without_beginning(runs, losses):
        whole.append(_beginning(run, first, runs.get(run, ()), usable))
    whole.sort(key=lambda row: (row.id, row.kind != RunBegan.__name__))
    marks = [_mark(loss, run, runs.get(run, ()), usable, now) for loss in losses for run in _runs_of(loss, usable)]
    lossy = dict.fromkeys(mark.run for mark in marks if mark.run)
    return [*whole, *marks, *_ends(lossy, whole)]


def _without_beginning(runs: Mapping[str, Sequence[RawRow]], losses: Iterable[Loss]) -> Iterator[tuple[str, int]]:
    """Runs whose first row is lost, and the number that a beginning would have had."""
    for run, rows in runs.items():
        if run and rows[0].kind != RunBegan.__name__:
            yield run, rows[0].id
    for loss in losses:
        if loss.run and loss.run not in runs:
            yield loss.run, loss.first


def _beginning(run: str, first: int, rows: Sequence[RawRow], usable: Sequence[RawRow]) -> RawRow:
    """A beginning that says what the other rows show: the name of the job, and on which clouds the run rented."""
    named = _RUN.fullmatch(run)
    job = named[1] if named else run
    markets = [json.loads(row.body)["market"] for row in rows if row.kind == RentIntended.__name__]
    clouds = list(dict.fromkeys(market.partition("/")[0] for market in markets)) or _clouds_of_others(job, usable)
    spec = {"name": job, "kind": "command", "run": _UNKNOWN_PROGRAM, "resources": {"clouds": clouds}}
    at = rows[0].at if rows else _wall(usable, first)[0]
    wall = _wall(rows or usable, first)[0] if is_replayed(clouds[0]) or not rows else at
    return _raw(run, at, RunBegan(job, "+".join(clouds), spec, "", wall), first)


def _clouds_of_others(job: str, usable: Iterable[RawRow]) -> list[str]:
    """The clouds of another run, of the same job if there is one; a run without orders has rented nothing anyway."""
    others = [json.loads(row.body) for row in usable if row.kind == RunBegan.__name__]
    others.sort(key=lambda began: began["job"] == job)
    return others[-1]["provider"].split("+") if others else ["local"]


def _runs_of(loss: Loss, usable: Iterable[RawRow]) -> list[str]:
    """The runs that a loss may concern; empty text stands for a run that left nothing else."""
    if loss.run:
        return [loss.run]
    going = dict[str, None]()
    for row in usable:
        if row.id < loss.first and row.run:
            if row.kind == RunEnded.__name__:
                going.pop(row.run, None)
            elif row.kind == RunBegan.__name__:
                going[row.run] = None
    return [*going, ""]


def _mark(loss: Loss, run: str, rows: Sequence[RawRow], usable: Sequence[RawRow], now: int) -> RawRow:
    if not run:
        since, until = _wall(usable, loss.first, now)
        at = until
    else:
        before = [row.at for row in rows if row.id < loss.first]
        later = [row.at for row in rows if row.id > loss.last]
        at = max([row.at for row in rows], default=_wall(usable, loss.first)[0])
        since, until = max(before, default=min(later, default=at)), min(later, default=at)
    return _raw(run, at, RowsLost(loss.rows, loss.first, loss.last, since, until, loss.kinds))


def _ends(lossy: Iterable[str], whole: Sequence[RawRow]) -> Iterator[RawRow]:
    """For lossy runs that have not ended: an end if a later run of the job has begun, else a request to end."""
    newest = {json.loads(row.body)["job"]: row for row in whole if row.kind == RunBegan.__name__}
    job_of = {row.run: json.loads(row.body)["job"] for row in whole if row.kind == RunBegan.__name__}
    for run in lossy:
        rows = [row for row in whole if row.run == run]
        if any(row.kind == RunEnded.__name__ for row in rows):
            continue
        at, later = max(row.at for row in rows), newest[job_of[run]]
        if later.run == run:
            yield _raw(run, at, StopRequested(FAILED, LOST))
        else:
            yield _raw(run, at, RunEnded(STOPPED, LOST, json.loads(later.body)["wall_us"]))


def _wall(rows: Iterable[RawRow], position: int, otherwise: int = 0) -> tuple[int, int]:
    """This computer's time at the rows before and after a position, as far as rows say it."""
    known = [(row.id, int(json.loads(row.body)["wall_us"])) for row in rows if row.kind in _WITH_WALL_CLOCK]
    since = max((at for id_, at in known if id_ < position), default=min((at for _, at in known), default=0))
    return since, min((at for id_, at in known if id_ > position), default=max(otherwise, since))


def _raw(run: str, at: int, event: Event, id_: int = 0) -> RawRow:
    return RawRow(id_, run, at, type(event).__name__, to_json(event))
