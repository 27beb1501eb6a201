"""Names in a job file that no cloud knows, each with the name that was probably meant. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator

from pricing_data.regions import mistyped
from pricing_data.spelling import closest
from spotctl.files.job.resources import Resources
from spotctl.planning.offers import MarketSnapshot


def misspelled(resources: Resources, snapshot: MarketSnapshot) -> Iterator[str]:
    """Why nothing can match: a type, an accelerator or a region that does not exist."""
    kinds = [kind for kind in snapshot.kinds if kind.cloud in resources.clouds]
    listed = [machine for machine in snapshot.catalog.types if machine.cloud in resources.clouds]
    yield from _types(resources, {kind.type for kind in kinds} or {machine.name for machine in listed})
    yield from _accelerators(resources, snapshot)
    known = {kind.region for kind in kinds}
    for region in resources.regions:
        if region not in known and (near := mistyped(region)):
            yield f"no region is named {region} (did you mean {near}?)"


def _types(resources: Resources, known: Collection[str]) -> Iterator[str]:
    for glob in resources.types:
        if not fnmatch.filter(known, glob) and (near := closest(glob, known)):
            yield f"no known type is named {glob} (did you mean {near[0]}?)"


def _accelerators(resources: Resources, snapshot: MarketSnapshot) -> Iterator[str]:
    wanted = resources.needs.accelerators
    known = {machine.accelerator for machine in snapshot.catalog.types if machine.accelerator is not None}
    if wanted is None or any(wanted.model.lower() in accelerator.lower() for accelerator in known):
        return
    near = closest(wanted.model.upper(), known)
    question = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    yield f"no known machine has the accelerator {wanted.model} ({question})"
