"""Where a job's data and checkpoint are: its paths, its buckets by region, and what its machines
cannot reach.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pricing_data.market import api_region, is_region_of, similar
from spotctl.agent.cloud_parts import clouds_by_scheme, form_of
from spotctl.agent.data.sets import FOLDER, SetLocation
from spotctl.files.job.forms import ANY
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec, data_variable
from spotctl.files.yaml_file import Problem
from spotctl.home.cloud import cloud_of


def reach_problems(spec: JobSpec) -> Iterator[Problem]:
    """Paths that the job's machines cannot reach, and what rented machines cannot do for a
    training.
    """
    if not spec.is_local:
        regions = spec.resources.regions
        # A cluster with folders that all of it sees is one region.
        is_one = len(regions) == 1 or (len(spec.resources.clouds) == 1 and shares_folders(spec))
        if not spec.on_ray and isinstance(spec.program, Training) and not is_one:
            message = (
                "the nodes of a training reach each other at private addresses, so they share a "
                "region; write one region, such as regions: [us-east-1]"
            )
            yield Problem(("resources", "regions"), message, is_missing=not regions)
        yield from _of_rented_paths(spec, paths_of(spec))
        return
    for loc, path in paths_of(spec).items():
        if "://" in path:
            yield Problem(
                loc, f"is {path}, which the local market cannot reach; write a path or file:///PATH"
            )
        elif loc[0] == "data" and not Path(path).exists():
            yield _is_missing(loc, path)


def paths_of(spec: JobSpec) -> dict[tuple[str, str], str]:
    """The paths and locations of the job, by their places in its file."""
    paths = {("data", name): path for name, path in spec.data.items()}
    paths |= {("outputs", name): path for name, path in spec.outputs.items()}
    if isinstance(spec.program, Command) and spec.program.checkpoint is not None:
        paths["checkpoint", "path"] = spec.program.checkpoint.path
    return paths


def overlap_problems(spec: JobSpec, home: Path | None) -> Iterator[Problem]:
    """Outputs that overlap with other files, of which one or the other would be lost. Paths are
    absolute.

    An output may be in the work folder, and not around it.
    """
    others = {
        "workdir": str(spec.workdir),
        **({} if home is None else {"spotctl's home": str(home.resolve())}),
    }
    others |= {".".join(loc): path for loc, path in paths_of(spec).items() if loc[0] != "outputs"}

    for name, place in spec.outputs.items():
        for what, other in others.items():
            overlap = _overlap(place, other)
            if overlap and (what, overlap) != ("workdir", "is in"):
                its = what if other == place else f"{what}, {other}"
                yield Problem(
                    ("outputs", name), f"{place} {overlap} {its}; write a folder of its own"
                )
                break
        others[f"outputs.{name}"] = place


def _overlap(place: str, other: str) -> str:
    """How a location and another one overlap, in words; empty if they do not."""
    mine, theirs = (
        [step for step in path.split("/") if step not in ("", ".")] for path in (place, other)
    )
    if ("://" in place) != ("://" in other):
        return ""
    if mine == theirs:
        return "is also"
    if mine[: len(theirs)] == theirs:
        return "is in"

    return "contains" if theirs[: len(mine)] == mine else ""


def store_packages(spec: JobSpec) -> tuple[str, ...]:
    """The packages by which the job's machines reach its data, checkpoint and outputs; none if they
    are in no store.
    """
    if bucket_of(spec) or any("://" in path for path in spec.data.values()):
        return ("obstore",)
    return ()


def checkpoint_place(spec: JobSpec) -> str | None:
    """The path or location where a command keeps its checkpoint."""
    path = paths_of(spec).get(("checkpoint", "path"))
    return None if path is None else path.rstrip("/")


def written_places(spec: JobSpec) -> set[str]:
    """The locations in object stores below which the job's machines and its launches write."""
    places = {path for loc, path in paths_of(spec).items() if loc[0] != "data"}
    buckets = {bucket.rstrip("/") for bucket in spec.data_buckets.values()}
    for location in spec.data.values():
        stored = SetLocation.parse(location)
        if stored is not None:
            buckets.add(stored.bucket)

    places |= {f"{bucket}/{FOLDER}" for bucket in buckets}
    return {place for place in places if place.partition("://")[0] in clouds_by_scheme()}


def bucket_of(spec: JobSpec) -> str:
    """The bucket of the job's checkpoint or outputs, such as s3://bucket, preferably on one of its
    clouds; empty if it has none."""
    buckets = list[str]()
    for (section, _), path in paths_of(spec).items():
        if section != "data" and "://" in path:
            bucket = "/".join(path.split("/")[:3])
            # The checkpoint is named last, and used most.
            buckets.insert(0, bucket)

    clouds = clouds_by_scheme()
    for bucket in buckets:
        if clouds.get(bucket.partition("://")[0]) in spec.resources.clouds:
            return bucket
    return buckets[0] if buckets else ""


def shares_folders(spec: JobSpec) -> bool:
    """Whether the job's machines see folders of this computer."""
    return all(cloud_of(cloud).shares_folders for cloud in spec.resources.clouds)


def stored_folders(spec: JobSpec) -> dict[str, str]:
    """The data on this computer, by name, that a job's rented machines get from its bucket."""
    if spec.is_local or not bucket_of(spec) or shares_folders(spec):
        return {}
    return {name: path for name, path in spec.data.items() if "://" not in path}


def _of_rented_paths(spec: JobSpec, paths: Mapping[tuple[str, str], str]) -> Iterator[Problem]:
    folders = stored_folders(spec)
    for loc, path in paths.items():
        if loc[0] == "data" and loc[1] in folders:
            if not Path(path).exists():
                yield _is_missing(loc, path)
            continue
        if loc[0] == "data" and shares_folders(spec) and not Path(path).exists():
            yield _is_missing(loc, path)
        # The launcher itself writes the model of a training.
        is_model = loc == ("outputs", "model") and isinstance(spec.program, Training)
        if "://" not in path and not is_model and not shares_folders(spec):
            message = (
                f"is {path}, a path on this computer, which rented machines cannot see; write "
                "s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER@ACCOUNT/PATH"
            )
            if loc[0] == "data":
                other = "outputs.model"
                if isinstance(spec.program, Command):
                    other = "the checkpoint or an output"
                message += (
                    f", or put {other} there: spotctl then stores the data in the same bucket"
                )
            yield Problem(loc, message)


def _is_missing(loc: tuple[str, str], path: str) -> Problem:
    return Problem(loc, f"is {path}, but no such file or folder exists; correct the path")


def bucket_at(spec: JobSpec, cloud: str, region: str) -> str:
    """The bucket that the job names for a region; empty if it names none."""
    here = api_region(cloud, region)
    for name, bucket in spec.data_buckets.items():
        if api_region(cloud, name) == here and is_region_of(cloud, name):
            return bucket.rstrip("/")
    return ""


def copy_in(bucket: str, location: str) -> str:
    """The place where a bucket keeps a copy of a data set. Empty if there is no copy: no bucket is
    given, the bucket holds the data set itself, or the location names no data set."""
    stored = SetLocation.parse(location)
    if stored is None or not bucket or stored.bucket == bucket:
        return ""
    return str(replace(stored, bucket=bucket))


def copies_near(spec: JobSpec, cloud: str, region: str) -> dict[str, str]:
    """The copies that machines of a region read, if they exist, by the environment variables of the
    data.
    """
    bucket = bucket_at(spec, cloud, region)
    places = {
        data_variable(name): copy_in(bucket, location) for name, location in spec.data.items()
    }
    return {variable: place for variable, place in places.items() if place}


def problems_of_buckets(spec: JobSpec) -> Iterator[Problem]:
    """Mistakes in `data_buckets`."""
    loc = "data_buckets"
    if not spec.data_buckets or spec.on_ray:
        return
    if spec.is_local:
        yield Problem((loc,), "applies to cloud machines, not to the local market; remove it")
        return

    if not any("://" not in place or SetLocation.parse(place) for place in spec.data.values()):
        yield Problem(
            (loc,),
            "is for folders of this computer under data, and there is none; add one, or remove it",
        )

    for region, bucket in spec.data_buckets.items():
        if wrong := _mistake(spec, region, bucket):
            yield Problem((loc, region), wrong)


def _mistake(spec: JobSpec, region: str, bucket: str) -> str:
    clouds, regions = spec.resources.clouds, spec.resources.regions
    cloud = next((name for name in clouds if is_region_of(name, region)), None)
    if cloud is None:
        near = similar(region, clouds)
        return (
            f"is not a region of {' or '.join(clouds)}; "
            f"{f'did you mean {near}?' if near else 'expected one of theirs'}"
        )
    if (
        regions
        and regions != (ANY,)
        and not any(api_region(cloud, region) == api_region(cloud, name) for name in regions)
    ):
        return (
            f"is not one of resources.regions: [{', '.join(regions)}]; add it there, or remove it"
        )
    if clouds_by_scheme().get(bucket.partition("://")[0]) != cloud:
        form = "one of its cloud"
        if cloud in clouds_by_scheme().values():
            form = form_of(cloud).removesuffix("/...")
        return f"is in {cloud}, and {bucket} is a bucket of another cloud; write {form}"

    return ""
