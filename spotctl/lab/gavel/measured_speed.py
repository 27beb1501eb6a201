"""Writes the speed of a parallel plan into a Gavel problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from spotctl.home.errors import BadRequest
from spotctl.lab.gavel import problem_file as gavel_problem

if TYPE_CHECKING:
    from agileml.pipeline.plan.parallel_plan import ParallelPlan


_BASES = {"profiled": "profile", "scaled": "formula"}


def write_throughput(path: Path, job: str, kind: str, plan: ParallelPlan, batch: int) -> None:
    """Sets a job's throughput on a worker type in updates per second, its interval, and the workers that it takes.

    The rest of the file stays as it is.
    """
    problem, _ = gavel_problem.load(path)
    workers = plan.devices
    if kind not in problem.cluster.types:
        raise BadRequest(
            f"{path}: no worker type {kind!r} (--devices names it): expected {', '.join(problem.cluster.types)}"
        )
    content = json.loads(path.read_text())
    entry = next((job_entry for job_entry in content["jobs"] if job_entry["id"] == job), None)
    if entry is None:
        raise BadRequest(f"{path}: no job {job!r}: expected one of {', '.join(problem.jobs.ids)}")
    others = sorted(entry["throughputs"].keys() - {kind})
    scale = entry.get("scale", 1)
    if others and scale != workers:
        raise BadRequest(
            f"{path}: job {job!r} has scale {scale} for {', '.join(others)}, and the plan takes {workers} workers:"
            f" plan {scale} devices, or remove the other throughputs"
        )
    entry["throughputs"][kind], entry["scale"] = plan.samples_per_second / batch, workers
    interval = [speed / batch for speed in plan.interval]
    entry.setdefault("estimates", {})[kind] = {"basis": _BASES[plan.basis], "interval": interval}
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)
