"""Fleets of one type at a time, complete from their first order on: `on-demand` is the baseline
itself, `standard` the cheapest market now, with a bid at the on-demand price, until it is evicted
(Harlap 4.5.2), and `tierml` the machine type with the longest expected time to eviction (TierML
3.4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.strategies.base import Decision, Offer, Rent, Return, Situation, described
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR


class AlwaysOnDemand:
    """Rents the baseline once and keeps it."""

    name = "on-demand"

    def decide(self, situation: Situation) -> Decision:
        """Rents the baseline at the start, then nothing."""
        if situation.holdings:
            return Decision()
        return Decision((situation.baseline,), reason=f"rent {described(situation.baseline)}")


@dataclass(frozen=True, slots=True)
class Standard:
    """The usual fleet: one type at a time, with enough machines to match the baseline's work per
    hour.

    While even the cheapest market costs more per unit of work than the baseline does on demand, the
    baseline is rented on demand and the market checked again every hour. With `by_machine` it takes
    the lowest price of a machine, however many machines it needs.
    """

    name: str = "standard"
    by_machine: bool = False

    def decide(self, situation: Situation) -> Decision:
        """Rents when nothing is held; looks for spot again while on-demand machines are held."""
        if situation.on_spot:
            return Decision()

        baseline = situation.baseline
        cheapest = cheapest_spot(situation, by_machine=self.by_machine)
        if (
            cheapest is None
            or situation.price(cheapest) / cheapest.nu
            >= baseline.offer.on_demand / baseline.offer.nu
        ):
            rents = () if situation.holdings else (baseline,)
            return Decision(
                rents, situation.now + HOUR, "no spot price is below on-demand per unit of work"
            )

        machines = ceil(baseline.machines * baseline.offer.nu / cheapest.nu)
        returns = tuple(Return(holding.allocation) for holding in situation.holdings)
        reason = (
            f"cheapest per unit of work: {cheapest.market} at "
            f"${situation.price(cheapest) / NANOS_PER_DOLLAR:.3g}/h"
        )
        return Decision((*returns, Rent(cheapest, machines, cheapest.on_demand)), reason=reason)


def cheapest_spot(situation: Situation, *, by_machine: bool = False) -> Offer | None:
    """The offer with the lowest price per unit of work, or of a machine, among those at or below
    their on-demand price."""
    fair = [offer for offer in situation.offers if situation.price(offer) <= offer.on_demand]
    return min(
        fair,
        key=lambda offer: situation.price(offer) / (1 if by_machine else offer.nu),
        default=None,
    )


LONGEST = 72 * HOUR
"""Expected times above this count as equal; markets that rarely cross on-demand are all good
enough."""

# How long each start is observed; shorter than LONGEST could not yield an expectation above it.
_WATCHED = 10 * 24 * HOUR
_TENTHS = 10
_SWITCH_FACTOR = 2.0
_LOOK_EVERY = 2 * MINUTE


def mttf_by_tenth(history: PriceSeries, on_demand: int) -> tuple[float, ...]:
    """Mean time until the price crosses on-demand, in microseconds, by the price's tenth of
    on-demand. A tenth in which the price never was takes the value of the next higher one that it
    was in."""
    edges = np.arange(_TENTHS + 1, dtype=np.int64) * on_demand // _TENTHS
    watched = min(_WATCHED, (history.last - history.first) // 2)
    means = CrossingHistory(history, watched).mean_times(on_demand, edges)
    known = 0.0
    filled = []
    for mean in reversed(means):
        known = known if mean is None else min(mean, LONGEST)
        filled.append(known)

    return tuple(reversed(filled))


def expected_time(by_tenth: tuple[float, ...], price: int, on_demand: int) -> float:
    """The mean time until a price crosses on-demand, by its tenth; 0 above on-demand."""
    if price > on_demand:
        return 0.0
    return by_tenth[min(price * _TENTHS // on_demand, _TENTHS - 1)]


@dataclass(frozen=True, slots=True)
class TierMl:
    """Switches type when another is expected to last at least twice as long. The old machines work
    to the end of their paid hour, where an eviction would still be refunded. While every spot price
    is above on-demand, rents on demand. `mttf` are mean times to an eviction, by the price's tenth
    of on-demand."""

    mttf: Mapping[Market, tuple[float, ...]]
    name: str = "tierml"

    def decide(self, situation: Situation) -> Decision:
        """Decides every two minutes."""
        wake_at = situation.now + _LOOK_EVERY
        current = next(
            (holding for holding in situation.holdings if holding.leaves_at is None), None
        )
        limit = situation.baseline.offer.on_demand / situation.baseline.offer.nu
        fair = [
            offer
            for offer in situation.offers
            if situation.price(offer) <= offer.on_demand
            and situation.price(offer) / offer.nu <= limit
        ]

        # The cheapest of those that are expected to last equally long.
        best = max(
            fair,
            key=lambda offer: (
                self._expected(situation, offer),
                -situation.price(offer) / offer.nu,
            ),
            default=None,
        )

        if best is None:
            rents = () if current is not None else (situation.baseline,)
            return Decision(rents, wake_at, "every spot price is above on-demand")

        if current is not None and current.rent.spot:
            held = current.rent.offer
            least = _SWITCH_FACTOR * self._expected(situation, held)
            if best == held or self._expected(situation, best) < least:
                return Decision(wake_at=wake_at)

        machines = ceil(situation.baseline.machines * situation.baseline.offer.nu / best.nu)
        leave: tuple[Return, ...] = ()
        if current is not None:
            # At the end of the hour that is already paid.
            paid_until = current.start + -((current.start - situation.now) // HOUR) * HOUR
            leave = (Return(current.allocation, paid_until),)

        hours = self._expected(situation, best) / HOUR
        reason = f"{best.market} is expected to last {hours:.1f} hours before an eviction"
        return Decision((*leave, Rent(best, machines, best.on_demand)), wake_at, reason)

    def _expected(self, situation: Situation, offer: Offer) -> float:
        by_tenth = self.mttf[offer.market]
        return expected_time(by_tenth, situation.price(offer), offer.on_demand)
