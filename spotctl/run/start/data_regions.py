"""Says which data a plan's machines read from another region or cloud, and what that costs."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from pricing_data.errors import PricingDataError
from pricing_data.list_prices import Location, egress
from pricing_data.market import api_region
from pricing_data.units import usd_text
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data.locations import StoreIdentity
from spotctl.agent.data.sets import SetLocation
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.wiring import buckets_of
from spotctl.files.job.data_places import bucket_at, bucket_of, stored_folders
from spotctl.files.job.spec import JobSpec
from spotctl.planning.values import JobPlan
from spotctl.run.environment import LAUNCHER

RegionOf = Callable[[str], Location | None]
"""Where the bucket of a location is; None if nothing says so."""


def far_data(plan: JobPlan, region_of: RegionOf) -> Iterator[str]:
    """A line for each part of the data that is in another region than the machines that the plan
    rents first.
    """
    markets = [choice.rent.offer.market for choice in plan.cost.choice] or [
        plan.decider.baseline.offer.market
    ]
    here = Location(markets[0].cloud, markets[0].region)
    spec = plan.job.spec
    near = bucket_at(spec, here.cloud, here.region)

    for name, location in stored_data(spec).items():
        there = region_of(location)
        if there is None or _is_same(there, here):
            continue
        where = there.region if there.cloud == here.cloud else f"{there.cloud}/{there.region}"
        is_copied = near and (name in stored_folders(spec) or SetLocation.parse(location))
        how = "each of them reads it from there"
        if is_copied:
            how = f"it is copied to {near} once, and until then each of them reads it from there"
        price = ""
        with suppress(PricingDataError):
            price = f", for about {usd_text(egress(there, here).usd_per_gb)} per GB"
        yield f"data {name}: {location} is in {where}, and the machines are in {here.region}: {how}{price}"


def misplaced_buckets(spec: JobSpec, region_of: RegionOf) -> Iterator[str]:
    """A line for each of a job's `data_buckets` that is not in the region for which it is named."""
    for region, bucket in spec.data_buckets.items():
        there = region_of(bucket)
        if there is not None and not _is_same(there, Location(there.cloud, region)):
            yield f"data_buckets.{region}: {bucket} is in {there.region}; name a bucket in {region}"


def bucket_location(location: str, identity: StoreIdentity = LAUNCHER) -> Location | None:
    """Where a bucket is, if its cloud says so to this identity."""
    scheme, _, rest = location.partition("://")
    cloud = clouds_by_scheme().get(scheme)
    if cloud is None:
        return None

    try:
        region = buckets_of(cloud).region_of(rest.partition("/")[0], identity(cloud))
    except StoreRefused:
        # Whoever may only read objects cannot ask; the launch goes on without the line.
        return None

    return Location(cloud, region) if region else None


def stored_data(spec: JobSpec) -> dict[str, str]:
    """The places in object stores from which rented machines read data, by the names of the
    data."""
    if spec.is_local:
        return {}
    places = {**spec.data, **dict.fromkeys(stored_folders(spec), bucket_of(spec))}
    return {name: place for name, place in places.items() if "://" in place}


def _is_same(there: Location, here: Location) -> bool:
    regions = {api_region(place.cloud, place.region) for place in (there, here)}
    return there.cloud == here.cloud and len(regions) == 1
