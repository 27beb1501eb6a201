"""Orphans: resources of an installation in its clouds that no active run owns, found by tags."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pricing_data.known_clouds import cloud_names, is_cloud
from spotctl.clouds.base import CloudProvider, Resource
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.installation import installation_id
from spotctl.clouds.requests import as_far_as_listed
from spotctl.clouds.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.statuses import read_log
from spotctl.log.store import is_running

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of one cloud; `failure` says why the cloud could not be searched, or only in part."""

    cloud: str
    provider: CloudProvider
    resources: tuple[Resource, ...] = ()
    failure: ProviderError | None = None


def orphans(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[Orphans]:
    """The orphans of these clouds; if none is named, of every cloud on which a job was ever launched."""
    for cloud, provider in providers(settings, clouds):
        tags = {INSTALLATION_TAG: installation_id(settings.home)}
        try:
            existing, failure = as_far_as_listed(partial(provider.resources, tags))
            # Read afterwards: what a run has rented that began in the meantime is not orphaned.
            active = {state.run for state in read_log(settings).latest if state.ended is None}
            locks = Paths(settings.home).locks
            orphaned = tuple(
                resource
                for resource in existing
                if (run := resource.tags.get(RUN_TAG, "")) not in active and not is_running(locks, job_of(run))
            )
        except ProviderError as error:
            yield Orphans(cloud, provider, failure=error)
            continue
        yield Orphans(cloud, provider, orphaned, failure)


def providers(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[tuple[str, CloudProvider]]:
    """The named clouds; if none is named, every cloud on which a job was ever launched."""
    if unknown := [cloud for cloud in clouds if not is_cloud(cloud)]:
        raise BadRequest(f"cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}")
    known = read_log(settings)
    for cloud in dict.fromkeys(clouds or (LOCAL, *known.clouds(settings.home))):
        if cloud != LOCAL:
            yield cloud, _cloud(settings, cloud, known.regions(settings.home))
        elif (local := _local_market(settings)) is not None:
            yield cloud, local


def job_of(run: str) -> str:
    """The job of a run, from the name of the run."""
    return run.rpartition("-")[0]


def _cloud(settings: Settings, cloud: str, regions: Sequence[str]) -> CloudProvider:
    """A cloud in all regions. If its settings name regions: in those, and in the regions that jobs named."""
    own: tuple[str, ...] = getattr(settings.tables.get(cloud), "regions", ())
    return cloud_provider(settings, (cloud,), (*own, *regions) if own else ())


def _local_market(settings: Settings) -> CloudProvider | None:
    """The local market, if it was ever started. Nothing is rented here, so no prices are needed."""
    from spotctl.clouds.local.provider import LocalProvider
    from spotctl.clouds.replayed import Replayed

    provider = LocalProvider(settings.home / LOCAL, lambda: Replayed.of(()))
    return provider if provider.has_begun else None
