"""Jobs that may move between regions, and the cost of their moves. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bidbrain.decision.roaming import Roaming, observed, regions_of
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import Look, Offer
from bidbrain.strategies.names import REGIONS
from bidbrain.strategies.regions_knowledge import Known
from bidbrain.values import Overheads
from pricing_data.errors import UnknownPrice
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import SECOND
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import ANY, AUTO, JobSpec
from spotctl.planning.offers import MachineKind

GB = 10**9
_GB_PER_SECOND = 0.2
"""Assumed: about the rate at which one machine reads from an object store in another region."""
_ASSUMED_GB = 10.0
"""The size of a checkpoint that the job file does not declare, until one is written."""


def may_roam(spec: JobSpec) -> bool:
    """Whether a job may move between regions: by its strategy, or because it names several places."""
    program, wanted = spec.program, spec.resources
    if not isinstance(program, Command) or program.checkpoint is None or spec.deadline is None:
        return False
    if wanted.reservations:
        return False
    several = any(places == (ANY,) or len(places) > 1 for places in (wanted.regions, wanted.zones))
    return spec.strategy == REGIONS or (spec.strategy == AUTO and several)


def declared_gb(spec: JobSpec) -> float | None:
    """The size of a command's checkpoint as the job file says; None if it does not."""
    kept = spec.program.checkpoint if isinstance(spec.program, Command) else None
    return None if kept is None or kept.size is None else kept.size / GB


def transfer_time(gigabytes: float) -> int:
    """How long a checkpoint takes to another region, in microseconds."""
    return round(gigabytes / _GB_PER_SECOND * SECOND)


def moving_overheads(overheads: Overheads, offers: Sequence[Offer], spec: JobSpec) -> Overheads:
    """The overheads of a job whose next start may be in another region than its checkpoint."""
    gigabytes = declared_gb(spec)
    if gigabytes is None or len(set(regions_of(offers))) == 1:
        return overheads
    return replace(overheads, startup=overheads.startup + transfer_time(gigabytes))


def unpriced(kinds: Sequence[MachineKind], at: int, lists: ListPrices) -> dict[int, str]:
    """The kinds in regions for which no price of sending data is known."""
    places = {(kind.cloud, kind.region) for kind in kinds}
    known = {place for place in places if _is_priced(place, at, lists)}
    why = "the cost of sending a checkpoint from its region is unknown"
    return {j: why for j, kind in enumerate(kinds) if (kind.cloud, kind.region) not in known}


def _is_priced(place: tuple[str, str], at: int, lists: ListPrices) -> bool:
    try:
        egress(Location(*place), None, at, lists)
    except UnknownPrice:
        return False
    return True


def roaming_of(
    offers: Sequence[Offer],
    histories: Mapping[Market, PriceSeries],
    hazards: Mapping[Market, Hazard | None],
    at: int,
    lists: ListPrices | None = None,
    gigabytes: float | None = None,
) -> Roaming:
    """The markets of a job with the price of sending a GB between any two, and the size that its checkpoint will have.
    Where only the price evicts, its past shows when spot could be had."""
    regions = regions_of(offers)
    first = {name: Location.of(offers[regions.index(name)].market) for name in dict.fromkeys(regions)}
    usd = {(a, b): 0.0 if a == b else egress(first[a], first[b], at, lists).usd_per_gb for a in first for b in first}
    per_gb = np.array([[usd[a, b] for b in regions] for a in regions])
    looks = [
        look for offer in offers if hazards[offer.market] is None for look in _looks(offer, histories[offer.market])
    ]
    saved = _ASSUMED_GB if gigabytes is None else gigabytes
    zones = {offer.market: zone for zone, offer in enumerate(offers)}
    return Roaming(tuple(offers), per_gb, observed(Known.nothing(regions), zones, looks), saved)


def _looks(offer: Offer, history: PriceSeries) -> list[Look]:
    """The spells in which a market's price was at most, or above, the on-demand price."""
    up = history.prices <= offer.on_demand
    changes = (np.flatnonzero(up[1:] != up[:-1]) + 1).tolist()
    looks = [Look(int(history.times[0]), offer.market, bool(up[0]))]
    for change in changes:
        at = int(history.times[change])
        # A change that is seen when it happens has its own time, not that of the middle between two looks.
        looks += [Look(at, offer.market, not up[change]), Look(at, offer.market, bool(up[change]))]
    return [*looks, Look(int(history.times[-1]), offer.market, bool(up[-1]))]
