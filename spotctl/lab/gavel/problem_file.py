"""`PROBLEM.json`: its schema, its errors, and the `AllocationProblem` it describes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
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
        content = json.loads(
            path.read_text(), object_pairs_hook=_without_repetition, parse_constant=_refused
        )
        file = ProblemFile.model_validate(content)
        return problem(file), {part.id: part.estimates for part in file.jobs if part.estimates}
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text: write the problem as JSON") from None
    except ValidationError as error:
        raise BadRequest(f"{path}: {_first_of(error)}") from None
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
        for name, value in given.items():
            base = name.removesuffix(SPREAD)
            if value != given.get(base, value):
                raise _Misfit(
                    f"{where}.{name}: {value:g}, and {given[base]:g} for {base!r}: they are the "
                    "same workers, so give both the same number, or leave this one out"
                )

    types = tuple(
        name
        for name in file.workers
        if name.removesuffix(SPREAD) == name or name.removesuffix(SPREAD) not in file.workers
    )

    _known("servers", file.servers, types)
    prices = None
    if file.prices is not None:
        _known("prices", file.prices, types)
        for name in types:
            if name not in file.prices:
                raise _Misfit(
                    f"prices.{name}: is missing: give a price for every worker type, or for none"
                )
        prices = np.array([file.prices[name] for name in types])

    workers = np.array([file.workers[name] for name in types], dtype=np.float64)
    jobs, placement = _jobs(file, types), None
    spread = np.array(
        [[_throughput(part, name + SPREAD) for name in types] for part in file.jobs]
    ).reshape(-1, len(types))

    if file.servers or (spread > 0)[jobs.scale > 1].any():
        sizes = np.array([file.servers.get(name, np.inf) for name in types])
        placement = Placement(jobs.throughputs, spread, sizes)
        jobs = replace(jobs, throughputs=placement.best(jobs.scale))

    return AllocationProblem(
        Cluster(types, workers, prices),
        jobs,
        _pairs(file, types) if file.pairs else None,
        tuple(Entity(name, part.weight, part.policy) for name, part in file.entities.items()),
        file.budget_usd,
        placement=placement,
    )


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


def _first_of(error: ValidationError) -> str:
    """One line. Unknown keys come first: they are often misspelled versions of missing ones."""
    first = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    given = first["input"]
    shown = (
        f", not {given!r}"
        if isinstance(given, str | int | float) and first["type"] != "extra_forbidden"
        else ""
    )

    unknown = " (no such field: check its spelling)" if first["type"] == "extra_forbidden" else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{shown}{unknown}{more}"


def _known(where: str, given: Iterable[str], types: Sequence[str]) -> None:
    for name in given:
        if name not in types and name.removesuffix(SPREAD) not in types:
            raise _Misfit(
                f"{where}.{name}: unknown worker type (expected one of {', '.join(types)})"
            )


def _jobs(file: ProblemFile, types: Sequence[str]) -> ClusterJobs:
    parts = file.jobs
    if repeated := _repeated(part.id for part in parts):
        raise _Misfit(f"jobs: id {repeated!r} is used twice: each job needs its own id")

    for i, part in enumerate(parts):
        _known(f"jobs.{i}.throughputs", part.throughputs, types)
        for name, estimate in part.estimates.items():
            if name not in part.throughputs:
                raise _Misfit(
                    f"jobs.{i}.estimates.{name}: the job has no throughput on {name}: add it, or "
                    "remove this"
                )
            (low, high), given = estimate.interval, part.throughputs[name]
            if not low <= given <= high:
                raise _Misfit(
                    f"jobs.{i}.estimates.{name}.interval: {low:g} to {high:g} does not contain the "
                    f"throughput {given:g}: correct one of them"
                )
        if part.entity is not None and part.entity not in file.entities:
            raise _Misfit(f"jobs.{i}.entity: {part.entity!r} is not in entities: add it there")
        if part.slo_seconds is not None and part.slo_seconds <= part.elapsed_seconds:
            raise _Misfit(
                f"jobs.{i}.slo_seconds: {part.slo_seconds:g} is in the past, "
                f"{part.elapsed_seconds:g} s after the job's"
                " arrival: give a later deadline, or none"
            )

    isolated = [
        part.elapsed_seconds if part.isolated_seconds is None else part.isolated_seconds
        for part in parts
    ]
    return ClusterJobs(
        ids=tuple(part.id for part in parts),
        throughputs=np.array(
            [[_throughput(part, name) for name in types] for part in parts]
        ).reshape(-1, len(types)),
        scale=np.array([part.scale for part in parts], dtype=np.int64),
        weight=_column(part.weight for part in parts),
        steps=_column(np.inf if part.steps is None else part.steps for part in parts),
        elapsed_seconds=_column(part.elapsed_seconds for part in parts),
        slo_seconds=_column(
            np.inf if part.slo_seconds is None else part.slo_seconds for part in parts
        ),
        arrival=_column(part.arrival for part in parts),
        entity=tuple(part.entity for part in parts),
        isolated_seconds=_column(isolated),
    )


def _throughput(part: JobPart, name: str) -> float:
    # One worker is on one server anyway.
    at_home = part.throughputs.get(name.removesuffix(SPREAD), 0.0) if part.scale == 1 else 0.0
    return part.throughputs.get(name, at_home)


def _column(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _pairs(file: ProblemFile, types: Sequence[str]) -> Pairs:
    rows = {part.id: m for m, part in enumerate(file.jobs)}
    for i, part in enumerate(file.pairs):
        _known(f"pairs.{i}.throughputs", part.throughputs, types)
        for name in part.jobs:
            if name not in rows:
                raise _Misfit(f"pairs.{i}.jobs: unknown job {name!r}")
        first, second = (file.jobs[rows[name]] for name in part.jobs)
        if first is second:
            raise _Misfit(
                f"pairs.{i}.jobs: {first.id!r} cannot be paired with itself: name two different "
                "jobs"
            )
        if first.scale != second.scale:
            scales = f"{first.scale} and {second.scale}"
            raise _Misfit(
                f"pairs.{i}.jobs: scales {scales} differ: only jobs of the same scale can share "
                "workers"
            )

    if repeated := _repeated("+".join(sorted(part.jobs)) for part in file.pairs):
        raise _Misfit(f"pairs: {repeated!r} is listed twice: give both throughputs in one pair")
    if clash := {"+".join(part.jobs) for part in file.pairs} & set(rows):
        raise _Misfit(f"jobs: id {min(clash)!r} is also the name of a pair: rename the job")

    nothing = (0.0, 0.0)
    return Pairs(
        np.array([[rows[name] for name in part.jobs] for part in file.pairs], dtype=np.int64),
        np.array([[part.throughputs.get(name, nothing) for name in types] for part in file.pairs]),
    )


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
        raise BadRequest(
            f"{path}: no worker type {kind!r} (--devices names it): expected "
            f"{', '.join(content['workers'])}"
        )

    entry = next((job_entry for job_entry in content["jobs"] if job_entry["id"] == job), None)
    if entry is None:
        raise BadRequest(f"{path}: no job {job!r}: expected one of {', '.join(problem.jobs.ids)}")

    others = sorted(entry["throughputs"].keys() - {kind})
    scale = entry.get("scale", 1)
    if others and scale != workers:
        raise BadRequest(
            f"{path}: job {job!r} has scale {scale} for {', '.join(others)}, and the plan takes "
            f"{workers} workers: plan {scale} devices, or remove the other throughputs"
        )

    entry["throughputs"][kind], entry["scale"] = plan.samples_per_second / batch, workers
    interval = [speed / batch for speed in plan.interval]
    entry.setdefault("estimates", {})[kind] = {"basis": _BASES[plan.basis], "interval": interval}
    with replaced(path) as new:
        new.write_text(json.dumps(content, indent=2) + "\n")
