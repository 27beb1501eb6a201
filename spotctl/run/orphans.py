"""Orphans: resources of an installation in its clouds that no active run owns, found by tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotctl.machines.base import ProviderError
from spotctl.machines.installation import installation_id
from spotctl.machines.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.runlog.statuses import clouds_used, regions_used, statuses
from spotctl.wiring import cloud_provider

if TYPE_CHECKING:
    from spotctl.config import Settings
    from spotctl.machines.base import CloudProvider, Resource

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Orphans:
    """What was found in one cloud; `failure` says why it could not be searched."""

    cloud: str
    provider: CloudProvider
    resources: tuple[Resource, ...] = ()
    failure: ProviderError | None = None


def orphans(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[Orphans]:
    """The orphans of these clouds; if none is named, of every cloud on which a job was ever launched."""
    for cloud in dict.fromkeys(clouds or (LOCAL, *clouds_used(settings))):
        provider = _local_market(settings) if cloud == LOCAL else _cloud(settings, cloud)
        if provider is None:
            continue
        tags = {INSTALLATION_TAG: installation_id(settings.home)}
        try:
            existing = provider.resources(tags)
            # Read afterwards: what a run has rented that began in the meantime is not orphaned.
            active = {status.state.run for status in statuses(settings) if status.state.ended is None}
            found = tuple(one for one in existing if one.tags.get(RUN_TAG) not in active)
        except ProviderError as error:
            yield Orphans(cloud, provider, failure=error)
            continue
        yield Orphans(cloud, provider, found)


def _cloud(settings: Settings, cloud: str) -> CloudProvider:
    """A cloud in all regions; where the settings name some of AWS, in these and in those that jobs named."""
    own = settings.aws.regions if cloud == "aws" else ()
    return cloud_provider(settings, (cloud,), (*own, *regions_used(settings)) if own else ())


def _local_market(settings: Settings) -> CloudProvider | None:
    """The local market, if it was ever started. Nothing is rented here, so no prices are needed."""
    from spotctl.machines.local import LocalProvider
    from spotctl.machines.replayed import Replayed

    provider = LocalProvider(settings.home / LOCAL, lambda: Replayed.of(()))
    return provider if provider.has_begun else None
