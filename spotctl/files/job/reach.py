"""Mistakes of a job about what its machines can reach."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec
from spotctl.files.yaml_file import Problem


def reach_problems(spec: JobSpec) -> Iterator[Problem]:
    """Paths that the job's machines cannot reach, and what rented machines cannot do for a training."""
    if not spec.is_local:
        if not spec.on_ray and isinstance(spec.program, Training):
            yield from _of_rented_training(spec)
        yield from _of_rented_paths(spec, paths_of(spec))
        return
    for loc, path in paths_of(spec).items():
        if "://" in path:
            yield Problem(loc, f"is {path}, which the local market cannot reach; write a path or file:///PATH")
        elif loc[0] == "data" and not Path(path).exists():
            yield _is_missing(loc, path)


def paths_of(spec: JobSpec) -> dict[tuple[str, str], str]:
    """The paths and locations of the job, by their places in its file."""
    paths = {("data", name): path for name, path in spec.data.items()}
    paths |= {("outputs", name): path for name, path in spec.outputs.items()}
    if isinstance(spec.program, Command) and spec.program.checkpoint is not None:
        paths["checkpoint", "path"] = spec.program.checkpoint.path
    return paths


def bucket_of(spec: JobSpec) -> str:
    """The bucket of the job's checkpoint or outputs, such as s3://bucket, preferably on one of its clouds; empty if it
    has none."""
    places = [path for loc, path in paths_of(spec).items() if loc[0] != "data" and "://" in path]
    # The checkpoint is named last, and used most.
    buckets = ["/".join(path.split("/")[:3]) for path in reversed(places)]
    clouds = clouds_by_scheme()
    near = [name for name in buckets if clouds.get(name.partition("://")[0]) in spec.resources.clouds]
    return next(iter(near + buckets), "")


def stored_folders(spec: JobSpec) -> dict[str, str]:
    """The data on this computer, by name, that a job's rented machines get from its bucket."""
    if spec.is_local or not bucket_of(spec):
        return {}
    return {name: path for name, path in spec.data.items() if "://" not in path}


def _of_rented_training(spec: JobSpec) -> Iterator[Problem]:
    if len(spec.resources.regions) != 1:
        message = (
            "the nodes of a training reach each other at private addresses, so they share a region; write one region,"
            " such as regions: [us-east-1]"
        )
        yield Problem(("resources", "regions"), message, is_missing=not spec.resources.regions)


def _of_rented_paths(spec: JobSpec, paths: Mapping[tuple[str, str], str]) -> Iterator[Problem]:
    folders = stored_folders(spec)
    for loc, path in paths.items():
        if loc[0] == "data" and loc[1] in folders:
            if not Path(path).exists():
                yield _is_missing(loc, path)
            continue
        # The launcher itself writes the model of a training.
        if "://" not in path and not (loc == ("outputs", "model") and isinstance(spec.program, Training)):
            message = (
                f"is {path}, a path on this computer, which rented machines cannot see; write s3://BUCKET/PATH,"
                " gs://BUCKET/PATH or az://CONTAINER@ACCOUNT/PATH"
            )
            if loc[0] == "data":
                message += f", or put {_in_a_bucket(spec)} there: spotctl then stores the data in the same bucket"
            yield Problem(loc, message)


def _in_a_bucket(spec: JobSpec) -> str:
    return "the checkpoint or an output" if isinstance(spec.program, Command) else "outputs.model"


def _is_missing(loc: tuple[str, str], path: str) -> Problem:
    return Problem(loc, f"is {path}, but no such file or folder exists; correct the path")
