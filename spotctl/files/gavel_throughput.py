"""Writes the speed of a parallel plan into a Gavel problem."""

from __future__ import annotations

import json
from pathlib import Path

from spotctl.errors import BadRequest
from spotctl.files import gavel_problem


def write_throughput(path: Path, job: str, kind: str, workers: int, steps_per_second: float) -> None:
    """Sets a job's throughput on a worker type, and the workers that it takes. The rest of the file stays as it is."""
    problem = gavel_problem.load(path)
    if kind not in problem.cluster.types:
        raise BadRequest(
            f"{path}: no worker type {kind!r} (--devices names it): expected {', '.join(problem.cluster.types)}"
        )
    content = json.loads(path.read_text())
    found = next((one for one in content["jobs"] if one["id"] == job), None)
    if found is None:
        raise BadRequest(f"{path}: no job {job!r}: expected one of {', '.join(problem.jobs.ids)}")
    others = sorted(found["throughputs"].keys() - {kind})
    scale = found.get("scale", 1)
    if others and scale != workers:
        raise BadRequest(
            f"{path}: job {job!r} has scale {scale} for {', '.join(others)}, and the plan takes {workers} workers:"
            f" plan {scale} devices, or remove the other throughputs"
        )
    found["throughputs"][kind], found["scale"] = steps_per_second, workers
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)
