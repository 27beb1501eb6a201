"""The usual fleets: `on-demand` is the baseline itself, and `standard` the cheapest market now, with a bid at the
on-demand price, until it is evicted (Harlap 4.5.2)."""

from dataclasses import dataclass
from math import ceil

from bidbrain.strategies.base import Decision, Offer, Rent, Return, Situation, described
from pricing_data.units import HOUR, NANOS_PER_DOLLAR


@dataclass(frozen=True, slots=True)
class AlwaysOnDemand:
    """Rents the baseline once and keeps it."""

    name: str = "on-demand"

    def decide(self, situation: Situation) -> Decision:
        """Rents the baseline at the start, then nothing."""
        return (
            Decision()
            if situation.holdings
            else Decision((situation.baseline,), reason=f"rent {described(situation.baseline)}")
        )


@dataclass(frozen=True, slots=True)
class Standard:
    """The usual fleet: one type at a time, with enough machines to match the baseline's work per hour.

    While even the cheapest market costs more per unit of work than the baseline does on demand, the baseline is rented
    on demand and the market checked again every hour.
    """

    name: str = "standard"

    def decide(self, situation: Situation) -> Decision:
        """Rents when nothing is held; looks for spot again while on-demand machines are held."""
        if situation.on_spot:
            return Decision()
        baseline = situation.baseline
        cheapest = cheapest_spot(situation)
        if cheapest is None or situation.price(cheapest) / cheapest.nu >= baseline.offer.on_demand / baseline.offer.nu:
            rents = () if situation.holdings else (baseline,)
            return Decision(rents, situation.now + HOUR, "no spot price is below on-demand per unit of work")
        machines = ceil(baseline.machines * baseline.offer.nu / cheapest.nu)
        returns = tuple(Return(holding.allocation) for holding in situation.holdings)
        reason = (
            f"cheapest per unit of work: {cheapest.market} at ${situation.price(cheapest) / NANOS_PER_DOLLAR:.3g}/h"
        )
        return Decision((*returns, Rent(cheapest, machines, cheapest.on_demand)), reason=reason)


def cheapest_spot(situation: Situation) -> Offer | None:
    """The offer with the lowest price per unit of work, among those at or below their on-demand price."""
    fair = [offer for offer in situation.offers if situation.price(offer) <= offer.on_demand]
    return min(fair, key=lambda offer: situation.price(offer) / offer.nu, default=None)
