"""Names in a job file that no cloud knows, each with the name that was probably meant. Pure."""

import fnmatch
from collections.abc import Collection, Iterator

from pricing_data.catalog import Catalog
from pricing_data.regions import mistyped
from pricing_data.spelling import closest
from spotctl.files.job.resources import Resources
from spotctl.planning.offers import MarketSnapshot


def misspelled(resources: Resources, snapshot: MarketSnapshot) -> Iterator[str]:
    """Why nothing can match: a type, an accelerator or a region that does not exist."""
    stored = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    yield from _types(resources, stored or _listed_types(resources, snapshot.catalog))
    if sentence := unknown_accelerator(resources, snapshot.catalog):
        yield sentence
    known = {kind.region for kind in snapshot.kinds if kind.cloud in resources.clouds}
    for region in resources.regions:
        if region not in known and (near := mistyped(region)):
            yield f"no region is named {region} (did you mean {near}?)"


def unknown_types(resources: Resources, snapshot: MarketSnapshot) -> bool:
    """Whether a job names types, and no cloud of the job has any of them."""
    known = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    known |= _listed_types(resources, snapshot.catalog)
    return bool(resources.types) and not any(fnmatch.filter(known, glob) for glob in resources.types)


def _listed_types(resources: Resources, catalog: Catalog) -> set[str]:
    return {machine.name for machine in catalog.types if machine.cloud in resources.clouds}


def _types(resources: Resources, known: Collection[str]) -> Iterator[str]:
    for glob in resources.types:
        if not fnmatch.filter(known, glob) and (near := closest(glob, known)):
            yield f"no known type is named {glob} (did you mean {near[0]}?)"


def unknown_accelerator(resources: Resources, catalog: Catalog) -> str:
    """A sentence about an accelerator that no machine has; empty if there are such machines."""
    wanted = resources.needs.accelerators
    if wanted is None or any(wanted.model.lower() in accelerator.lower() for accelerator in catalog.accelerators):
        return ""
    return catalog.unknown_accelerator(wanted.model)
