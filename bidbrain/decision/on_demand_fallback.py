"""When a command moves from spot to on-demand machines, to which, and when it returns. Pure.

Work that is evicted before a checkpoint is repeated. A job uses the machines on which an hour of lasting work costs
less, and tries spot again after a wait that doubles each time.
"""

from collections.abc import Container, Iterable

from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.strategies.base import RECORD_WINDOW, Offer, Rent, SpotRecord
from pricing_data.market import Market
from pricing_data.units import HOUR

FAILING_EVICTIONS = 3
"""Spot counts as failing from this many evictions within the window; fewer count as chance."""

FIRST_FALLBACK, LONGEST_FALLBACK = HOUR, 8 * HOUR
_ROUNDING = 1e-9


def reason_to_leave_spot(record: SpotRecord, price_share: float, now: int) -> str:
    """Why spot is not worth its price now; empty if it is. `price_share` is the spot price over the on-demand price."""
    since = max([now - RECORD_WINDOW, *record.fallbacks])
    times = sum(at > since for at in record.taken)
    if times < FAILING_EVICTIONS or record.lasting_share > price_share:
        return ""
    return (
        f"spot keeps failing: {times} evictions in {RECORD_WINDOW / HOUR:g} hours,"
        f" {record.lasting_share:.0%} of the paid time was useful, at {price_share:.0%} of the on-demand price"
    )


def left_failing_spot(record: SpotRecord) -> bool:
    """Whether the last move to on-demand machines followed several evictions, and had no other reason."""
    if not record.fallbacks:
        return False
    moved = record.fallbacks[-1]
    return sum(moved - RECORD_WINDOW < at <= moved for at in record.taken) >= FAILING_EVICTIONS


def fallback_end(record: SpotRecord) -> int | None:
    """Until when the job stays on demand, twice as long each time; None for a job that has not moved there."""
    if not record.fallbacks or not record.taken:
        return None
    times = len(record.fallbacks)
    return record.fallbacks[-1] + min(FIRST_FALLBACK << min(times - 1, 8), LONGEST_FALLBACK)


def granted_on_demand(
    wanted: Rent,
    offers: Iterable[Offer],
    most_nu: float,
    limits: MachineLimits,
    refused: Container[tuple[Market, bool]],
) -> Rent:
    """The wanted on-demand machines, or, while their market refuses them, the cheapest others that do as much."""
    if (wanted.offer.market, False) not in refused:
        return wanted
    least = wanted.machines * wanted.offer.nu * (1 - _ROUNDING)
    others = (
        Rent(offer, baseline_machines(most_nu, offer.nu, limits), None)
        for offer in offers
        if (offer.market, False) not in refused
    )
    enough = (rent for rent in others if limits.rentable(rent).machines * rent.offer.nu >= least)
    return min(enough, key=lambda rent: rent.machines * rent.offer.on_demand, default=wanted)
