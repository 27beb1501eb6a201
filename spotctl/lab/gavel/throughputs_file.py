"""Files of the cluster simulator: measured throughputs (JSON) and job traces (CSV), plain or
gzipped.
"""

import ast
import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO

import numpy as np

from bidbrain.lab.gavel.workload import ClusterWorkload, JobKind, Throughputs
from spotctl.home.errors import BadRequest

_ALONE = "null"
# Larger times lose tenths of seconds in floating point, and no job has more steps.
_MOST = 1e15
_COLUMNS = ("job_type", "total_steps", "scale_factor", "arrival_time_s")


def read_throughputs(path: Path) -> Throughputs:
    """Reads a table `{type: {kind: {"null" or other kind: steps per second}}}`; a kind is
    `"('name', workers)"`.
    """
    with _opened(path) as file:
        try:
            table = json.load(file)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"{path}: is not JSON ({error})") from error

    is_table = isinstance(table, dict) and bool(table)
    if not is_table or not all(isinstance(of_type, dict) for of_type in table.values()):
        raise BadRequest(f"{path}: is not a table of throughputs (one object per worker type)")

    kinds = {text: _kind(path, text) for of_type in table.values() for text in of_type}
    at = {text: number for number, text in enumerate(kinds)}
    alone = np.zeros((len(kinds), len(table)))
    together = np.zeros((len(kinds), len(kinds), len(table), 2))

    for j, (type_, of_type) in enumerate(table.items()):
        for text, entries in of_type.items():
            where, row = f"{path}: {type_}, {text}", at[text]
            if not isinstance(entries, dict) or _ALONE not in entries:
                raise BadRequest(f'{where}: has no throughput without a second job ("{_ALONE}")')
            alone[row, j] = _rate(where, entries[_ALONE])
            for other, both in entries.items():
                if other == _ALONE or other not in at:
                    continue
                with_other = f"{where} with {other}"
                if not isinstance(both, list) or len(both) != 2:
                    raise BadRequest(f"{with_other}: {both!r} is not a pair of throughputs")
                together[row, at[other], j] = [_rate(with_other, rate) for rate in both]

    return Throughputs(tuple(table), tuple(kinds.values()), alone, together)


def read_trace(
    path: Path, throughputs: Throughputs, seed: int
) -> tuple[ClusterWorkload, Mapping[JobKind, int]]:
    """The jobs of a CSV by arrival, those of one seed if the file has several; and by kind the
    number of jobs that are left out because their throughput is unknown."""
    read = _rows_of_trace(path)
    seeds = {row.seed for row in read}
    if len(seeds) > 1:
        read = [row for row in read if row.seed == str(seed)]
        if not read:
            known_seeds = ", ".join(sorted(seeds))
            raise BadRequest(f"{path}: has jobs of seeds {known_seeds}, not of --seed {seed}")

    at = {kind: number for number, kind in enumerate(throughputs.kinds)}
    unknown, known = Counter[JobKind](), list[_TraceRow]()
    for row in read:
        if row.kind in at:
            known.append(row)
        else:
            unknown[row.kind] += 1
    if not known:
        raise BadRequest(
            f"{path}: has no job with a known throughput (is this the right throughput table?)"
        )

    known.sort(key=attrgetter("arrival"))
    names, kinds, steps = list[str](), list[int](), list[float]()
    arrivals, weights, slo_factors = list[float](), list[float](), list[float]()
    entities = list[str]()
    for number, row in enumerate(known):
        names.append(str(number))
        kinds.append(at[row.kind])
        steps.append(row.steps)
        arrivals.append(row.arrival)
        weights.append(row.weight)
        slo_factors.append(row.slo_factor)
        entities.append(row.entity)

    workload = ClusterWorkload(
        throughputs,
        tuple(names),
        np.array(kinds, dtype=np.int64),
        np.array(steps),
        np.array(arrivals),
        np.array(weights),
        np.array(slo_factors),
        tuple(entities),
    )

    return workload, unknown


def _rows_of_trace(path: Path) -> "list[_TraceRow]":
    with _opened(path) as file:
        rows = csv.DictReader(file)
        names = rows.fieldnames or ()
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            expected = ", ".join(_COLUMNS)
            raise BadRequest(f"{path}: has no column {missing[0]!r} (a trace has {expected})")
        try:
            return [_TraceRow.of(f"{path}, line {rows.line_num}", row) for row in rows]
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRequest(f"{path}, line {rows.line_num}: is not CSV ({error})") from error


@dataclass(frozen=True, slots=True)
class _TraceRow:
    kind: JobKind
    steps: float
    arrival: float
    weight: float
    slo_factor: float
    seed: str
    entity: str

    @classmethod
    def of(cls, where: str, row: Mapping[str, str | None]) -> "_TraceRow":
        scale = _number(where, row, "scale_factor", least=1)
        if scale % 1:
            raise BadRequest(f"{where}: scale_factor {scale:g} is not a number of workers")

        slo = _number(where, row, "slo", least=-_MOST, default=-1.0)
        kind = JobKind(row["job_type"] or "", int(scale))
        steps = _number(where, row, "total_steps", least=1)
        arrival = _number(where, row, "arrival_time_s", least=0)
        weight = _number(where, row, "priority_weight", least=1e-9, default=1.0)
        # The published files mark jobs without a deadline with a negative number.
        slo_factor = slo if slo > 0 else float("inf")
        seed, entity = row.get("seed") or "", row.get("entity") or ""
        return cls(kind, steps, arrival, weight, slo_factor, seed, entity)


def _number(
    where: str, row: Mapping[str, str | None], name: str, least: float, default: float | None = None
) -> float:
    text = row.get(name)
    if not text and default is not None:
        return default

    try:
        number = float(text or "")
    except ValueError:
        number = float("nan")

    if not least <= number <= _MOST:
        raise BadRequest(f"{where}: {name} {text!r} is not a number from {least:g} to {_MOST:g}")
    return number


def _kind(path: Path, text: str) -> JobKind:
    try:
        name, scale = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        name = scale = None

    if not isinstance(name, str) or not isinstance(scale, int) or scale <= 0:
        shown = repr(text[:80])
        raise BadRequest(f"{path}: {shown} is not a kind of job (write \"('name', workers)\")")
    return JobKind(name, scale)


def _rate(where: str, value: object) -> float:
    # A whole number may be too large for a float, and for `isfinite`.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        shown = str(value)[:80]
        raise BadRequest(f"{where}: {shown} is not a throughput in steps per second")
    return float(value)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        # A damaged gzip file raises any of these while it is read.
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"{path}: cannot be read ({reason})") from error
