"""`PROBLEM.json`: its schema, its errors, and the `AllocationProblem` it describes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from agileml.runtime.ground import replaced
from bidbrain.arrays import Floats
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterJobs, Entity, Pairs, Placement
from bidbrain.lab.gavel.rounds import SPREAD
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from agileml.pipeline.plan.parallel_plan import ParallelPlan


# Beyond these, products of two numbers overflow floating point, and small differences vanish.
_LEAST, _MOST, _MAX_WORKERS = 1e-30, 1e30, 10**9


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticCustomError("number", "Input should be a number")
    return value


def _of_usual_size(value: float) -> float:
    if value and not _LEAST <= abs(value) <= _MOST:
        raise PydanticCustomError("size", f"Input should be 0 or between {_LEAST:g} and {_MOST:g}")
    return value


PlainNumber = Annotated[
    float, Field(allow_inf_nan=False), BeforeValidator(_number), AfterValidator(_of_usual_size)
]
Positive = Annotated[PlainNumber, Field(gt=0)]
NotNegative = Annotated[PlainNumber, Field(ge=0)]
Workers = Annotated[int, Field(ge=0, le=_MAX_WORKERS), BeforeValidator(_number)]
Name = Annotated[str, Field(min_length=1)]


class EstimatePart(BaseModel, extra="forbid"):
    """The source of an estimated throughput, and the interval in which the real one is expected."""

    basis: Literal["profile", "formula", "measured"]
    """Source of the estimate."""
    interval: tuple[NotNegative, NotNegative]
    """Interval in which the real throughput is expected."""


class JobPart(BaseModel, extra="forbid"):
    """A job in the file. `estimates` describe throughputs by type; a throughput without an estimate
    counts as exact.
    """

    id: Name
    throughputs: dict[str, NotNegative]
    estimates: dict[str, EstimatePart] = {}
    weight: Positive = 1.0
    scale: Annotated[Workers, Field(ge=1)] = 1
    steps: NotNegative | None = None
    elapsed_seconds: NotNegative = 0.0
    slo_seconds: NotNegative | None = None
    isolated_seconds: NotNegative | None = None
    arrival: PlainNumber = 0.0
    entity: str | None = None


class PairPart(BaseModel, extra="forbid"):
    """Two jobs on one worker: the throughput of each, by type."""

    jobs: tuple[str, str]
    throughputs: dict[str, tuple[NotNegative, NotNegative]]


class EntityPart(BaseModel, extra="forbid"):
    """A user or group that jobs belong to."""

    weight: Positive = 1.0
    policy: Literal["fairness", "fifo"] = "fairness"


class ProblemFile(BaseModel, extra="forbid"):
    """The whole file."""

    workers: Annotated[dict[Name, Workers], Field(min_length=1)]
    servers: dict[str, Annotated[Workers, Field(ge=1)]] = {}
    """Workers of a server, by type."""
    prices: dict[str, Positive] | None = None
    jobs: Annotated[list[JobPart], Field(min_length=1)]
    pairs: list[PairPart] = []
    entities: dict[Name, EntityPart] = {}
    budget_usd: Positive | None = None


Estimates = dict[str, dict[str, EstimatePart]]
"""By job and worker type."""


def load(path: Path) -> tuple[AllocationProblem, Estimates]:
    """Reads a problem; raises BadRequest that names the first mistake and its place in the file."""
    try:
        text = path.read_text()
        content = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_refused)
        file = ProblemFile.model_validate(content)
        estimates = {part.id: part.estimates for part in file.jobs if part.estimates}
        return problem(file), estimates
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text: write the problem as JSON") from None
    except ValidationError as error:
        # Unknown keys come first: they are often misspelled versions of missing ones.
        mistakes = error.errors()
        unknown_keys = [mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"]
        first, *_ = unknown_keys or mistakes
        where = ".".join(map(str, first["loc"])) or "the file"
        text, given = f"{where}: {first['msg']}", first["input"]
        if unknown_keys:
            text += " (no such field: check its spelling)"
        elif isinstance(given, str | int | float):
            text += f", not {given!r}"

        more = error.error_count() - 1
        if more > 0:
            text += f" (and {more} more)"

        raise BadRequest(f"{path}: {text}") from None
    except (ValueError, RecursionError) as error:
        # Invalid JSON, an integer of thousands of digits, or very deep nesting.
        raise BadRequest(f"{path}: is not JSON: {error}") from None
    except _Misfit as error:
        raise BadRequest(f"{path}: {error}") from None


def problem(file: ProblemFile) -> AllocationProblem:
    """The allocation problem in the form that policies solve.

    A type of workers that are spread over servers is no type of its own: it draws on the workers of
    its type.
    """
    if not any(file.workers.values()):
        raise _Misfit("workers: no type has any: give at least one type workers")

    for where, given in (("workers", file.workers), ("prices", file.prices or {})):
        for kind, value in given.items():
            # Workers that are spread over servers are those of their type.
            base_kind = kind.removesuffix(SPREAD)
            if value != given.get(base_kind, value):
                raise _Misfit(
                    f"{where}.{kind}: {value:g}, and {given[base_kind]:g} for {base_kind!r}: they "
                    "are the same workers, so give both the same number, or leave this one out"
                )

    types = list[str]()
    for name in file.workers:
        base = name.removesuffix(SPREAD)
        if base == name or base not in file.workers:
            types.append(name)

    _known("servers", file.servers, types)
    prices = None
    if file.prices is not None:
        _known("prices", file.prices, types)
        missing = [name for name in types if name not in file.prices]
        if missing:
            raise _Misfit(
                f"prices.{missing[0]}: is missing: give a price for every worker type, or for none"
            )
        prices = np.array([file.prices[name] for name in types])

    workers = np.array([file.workers[name] for name in types], dtype=np.float64)
    jobs, placement = _jobs(file, types), None
    spread = _rates(file.jobs, [name + SPREAD for name in types])
    is_spread = (spread > 0)[jobs.scale > 1]
    if file.servers or is_spread.any():
        sizes = np.array([file.servers.get(name, np.inf) for name in types])
        placement = Placement(jobs.throughputs, spread, sizes)
        jobs = replace(jobs, throughputs=placement.best(jobs.scale))

    pairs = _pairs(file, types) if file.pairs else None
    entities = [Entity(name, part.weight, part.policy) for name, part in file.entities.items()]
    cluster = Cluster(tuple(types), workers, prices)
    return AllocationProblem(
        cluster, jobs, pairs, tuple(entities), file.budget_usd, placement=placement
    )


def _rates(parts: Sequence[JobPart], names: Sequence[str]) -> Floats:
    """The throughputs of jobs, a row each, on these types."""
    rows = list[list[float]]()
    for part in parts:
        row = list[float]()
        for name in names:
            at_home = 0.0
            if part.scale == 1:
                # One worker is on one server anyway.
                base = name.removesuffix(SPREAD)
                at_home = part.throughputs.get(base, 0.0)
            row.append(part.throughputs.get(name, at_home))
        rows.append(row)
    return np.array(rows).reshape(-1, len(names))


class _Misfit(Exception):
    """Two parts of the file contradict each other."""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if repeated := _repeated(key for key, _ in pairs):
        raise _Misfit(f"duplicate key {repeated!r} in one object: keep one")
    return dict(pairs)


def _refused(constant: str) -> float:
    raise _Misfit(f"{constant} is not a number: leave out fields with unknown values")


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _known(where: str, given: Iterable[str], types: Sequence[str]) -> None:
    expected = ", ".join(types)
    for name in given:
        base = name.removesuffix(SPREAD)
        if name not in types and base not in types:
            raise _Misfit(f"{where}.{name}: unknown worker type (expected one of {expected})")


def _jobs(file: ProblemFile, types: Sequence[str]) -> ClusterJobs:
    parts = file.jobs
    repeated = _repeated(part.id for part in parts)
    if repeated:
        raise _Misfit(f"jobs: id {repeated!r} is used twice: each job needs its own id")

    for i, part in enumerate(parts):
        _known(f"jobs.{i}.throughputs", part.throughputs, types)
        _check_job(f"jobs.{i}", part, file.entities)

    ids, entities, scales = list[str](), list[str | None](), list[int]()
    weights, steps, deadlines = list[float](), list[float](), list[float]()
    elapsed, arrivals, isolated = list[float](), list[float](), list[float]()
    for part in parts:
        ids.append(part.id)
        entities.append(part.entity)
        scales.append(part.scale)
        weights.append(part.weight)
        steps.append(np.inf if part.steps is None else part.steps)
        deadlines.append(np.inf if part.slo_seconds is None else part.slo_seconds)
        elapsed.append(part.elapsed_seconds)
        arrivals.append(part.arrival)
        alone = part.isolated_seconds
        isolated.append(part.elapsed_seconds if alone is None else alone)

    return ClusterJobs(
        ids=tuple(ids),
        throughputs=_rates(parts, types),
        scale=np.array(scales, dtype=np.int64),
        weight=_column(weights),
        steps=_column(steps),
        elapsed_seconds=_column(elapsed),
        slo_seconds=_column(deadlines),
        arrival=_column(arrivals),
        entity=tuple(entities),
        isolated_seconds=_column(isolated),
    )


def _check_job(where: str, part: JobPart, entities: Mapping[str, object]) -> None:
    """Raises `_Misfit` for estimates, an entity or a deadline that do not fit the job."""
    for name, estimate in part.estimates.items():
        if name not in part.throughputs:
            raise _Misfit(
                f"{where}.estimates.{name}: the job has no throughput on {name}: add it, or "
                "remove this"
            )
        (low, high), given = estimate.interval, part.throughputs[name]
        if not low <= given <= high:
            raise _Misfit(
                f"{where}.estimates.{name}.interval: {low:g} to {high:g} does not contain the "
                f"throughput {given:g}: correct one of them"
            )

    if part.entity is not None and part.entity not in entities:
        raise _Misfit(f"{where}.entity: {part.entity!r} is not in entities: add it there")
    elapsed = part.elapsed_seconds
    if part.slo_seconds is not None and part.slo_seconds <= elapsed:
        raise _Misfit(
            f"{where}.slo_seconds: {part.slo_seconds:g} is in the past, {elapsed:g} s after the "
            "job's arrival: give a later deadline, or none"
        )


def _column(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _pairs(file: ProblemFile, types: Sequence[str]) -> Pairs:
    rows = {part.id: m for m, part in enumerate(file.jobs)}
    members, names = list[list[int]](), list[str]()
    throughputs, nothing = list[list[tuple[float, float]]](), (0.0, 0.0)
    for i, part in enumerate(file.pairs):
        where = f"pairs.{i}.jobs"
        _known(f"pairs.{i}.throughputs", part.throughputs, types)
        for name in part.jobs:
            if name not in rows:
                raise _Misfit(f"{where}: unknown job {name!r}")
        of_pair = [rows[name] for name in part.jobs]
        first, second = (file.jobs[m] for m in of_pair)
        if first is second:
            raise _Misfit(
                f"{where}: {first.id!r} cannot be paired with itself: name two different jobs"
            )
        if first.scale != second.scale:
            scales = f"{first.scale} and {second.scale}"
            raise _Misfit(
                f"{where}: scales {scales} differ: only jobs of the same scale can share workers"
            )
        members.append(of_pair)
        throughputs.append([part.throughputs.get(name, nothing) for name in types])
        names.append("+".join(part.jobs))

    repeated = _repeated("+".join(sorted(part.jobs)) for part in file.pairs)
    if repeated:
        raise _Misfit(f"pairs: {repeated!r} is listed twice: give both throughputs in one pair")
    clash = rows.keys() & set(names)
    if clash:
        raise _Misfit(f"jobs: id {min(clash)!r} is also the name of a pair: rename the job")

    return Pairs(np.array(members, dtype=np.int64), np.array(throughputs))


_BASES = {"profiled": "profile", "scaled": "formula"}


def write_throughput(path: Path, job: str, kind: str, plan: ParallelPlan, batch: int) -> None:
    """Sets a job's throughput on a worker type in updates per second, its interval, and the workers
    that it takes.

    The rest of the file stays as it is.
    """
    problem, _ = load(path)
    workers = plan.devices
    content = json.loads(path.read_text())
    if kind not in content["workers"]:
        known = ", ".join(content["workers"])
        raise BadRequest(f"{path}: no worker type {kind!r} (--devices names it): expected {known}")

    entry = next((job_entry for job_entry in content["jobs"] if job_entry["id"] == job), None)
    if entry is None:
        known = ", ".join(problem.jobs.ids)
        raise BadRequest(f"{path}: no job {job!r}: expected one of {known}")

    others = sorted(entry["throughputs"].keys() - {kind})
    scale = entry.get("scale", 1)
    if others and scale != workers:
        has = f"has scale {scale} for {', '.join(others)}, and the plan takes {workers} workers"
        cure = f"plan {scale} devices, or remove the other throughputs"
        raise BadRequest(f"{path}: job {job!r} {has}: {cure}")

    entry["throughputs"][kind] = plan.samples_per_second / batch
    entry["scale"] = workers
    interval = [speed / batch for speed in plan.interval]
    estimates = entry.setdefault("estimates", {})
    estimates[kind] = {"basis": _BASES[plan.basis], "interval": interval}
    text = json.dumps(content, indent=2)
    with replaced(path) as new:
        new.write_text(f"{text}\n")
