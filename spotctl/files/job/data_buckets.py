"""Copies of a job's data in the buckets of its regions: where they are, and mistakes in naming the buckets."""

from collections.abc import Iterator
from dataclasses import replace

from pricing_data.market import api_region, is_region_of
from pricing_data.spelling import similar
from spotctl.agent.cloud_parts import clouds_by_scheme, form_of
from spotctl.agent.data_sets import SetLocation
from spotctl.files.job.forms import ANY
from spotctl.files.job.spec import JobSpec, data_variable
from spotctl.files.yaml_file import Problem


def bucket_at(spec: JobSpec, cloud: str, region: str) -> str:
    """The bucket that the job names for a region; empty if it names none."""
    here = api_region(cloud, region)
    named = ((api_region(cloud, name), name, bucket) for name, bucket in spec.data_buckets.items())
    return next((bucket.rstrip("/") for at, name, bucket in named if at == here and is_region_of(cloud, name)), "")


def copy_in(bucket: str, location: str) -> str:
    """The place of a data set's copy in a bucket; empty if there is none, because the data set is there itself or the
    location is not that of a data set."""
    stored = SetLocation.parse(location)
    return "" if stored is None or not bucket or stored.bucket == bucket else str(replace(stored, bucket=bucket))


def copies_near(spec: JobSpec, cloud: str, region: str) -> dict[str, str]:
    """The copies that machines of a region read, if they exist, by the environment variables of the data."""
    bucket = bucket_at(spec, cloud, region)
    places = {data_variable(name): copy_in(bucket, location) for name, location in spec.data.items()}
    return {variable: place for variable, place in places.items() if place}


def problems_of_buckets(spec: JobSpec) -> Iterator[Problem]:
    """Mistakes in `data_buckets`."""
    loc = "data_buckets"
    if not spec.data_buckets:
        return
    if spec.is_local:
        yield Problem((loc,), "applies to cloud machines, not to the local market; remove it")
        return
    if not any("://" not in place or SetLocation.parse(place) for place in spec.data.values()):
        yield Problem((loc,), "is for folders of this computer under data, and there is none; add one, or remove it")
    for region, bucket in spec.data_buckets.items():
        if wrong := _mistake(spec, region, bucket):
            yield Problem((loc, region), wrong)


def _mistake(spec: JobSpec, region: str, bucket: str) -> str:
    clouds, regions = spec.resources.clouds, spec.resources.regions
    cloud = next((name for name in clouds if is_region_of(name, region)), None)
    if cloud is None:
        near = similar(region, clouds)
        return (
            f"is not a region of {' or '.join(clouds)}; {f'did you mean {near}?' if near else 'expected one of theirs'}"
        )
    if (
        regions
        and regions != (ANY,)
        and not any(api_region(cloud, region) == api_region(cloud, name) for name in regions)
    ):
        return f"is not one of resources.regions: [{', '.join(regions)}]; add it there, or remove it"
    if clouds_by_scheme().get(bucket.partition("://")[0]) != cloud:
        form = form_of(cloud).removesuffix("/...") if cloud in clouds_by_scheme().values() else "one of its cloud"
        return f"is in {cloud}, and {bucket} is a bucket of another cloud; write {form}"
    return ""
