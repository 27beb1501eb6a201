"""The budget of a replayed job: what its machines have cost, and are committed to cost, at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bidbrain.billing import BillingRule, End, Life, Prices, usd
from bidbrain.strategies.base import Holding, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedBudget:
    """Dollars that a job may spend. Machines are committed for a `lease` from now on, as in a run.

    `reliable` machines are paid from the job's start on.
    """

    usd: float
    billing: BillingRule
    histories: Mapping[Market, PriceSeries]
    lease: int
    reliable: Rent | None = None

    def paid(self, rent: Rent, life: Life) -> float:
        """What the machines of a purchase cost over a life."""
        prices: Prices = rent.offer.on_demand if rent.bid is None else self.histories[rent.offer.market]
        return rent.machines * usd(self.billing.bill(life, prices).amount)

    def left(self, start: int, now: int, spent: float, holdings: Iterable[Holding]) -> tuple[float, float]:
        """What may still be committed, after `spent` dollars for machines that are gone, and what is kept back for the
        leases of those that are held."""
        held = [(one.rent, one.start) for one in holdings]
        if self.reliable is not None:
            held.append((self.reliable, start))
        reserved = sum(self._reserved(rent, since, now) for rent, since in held)
        paid = sum(self.paid(rent, Life(since, now, End.LEFT)) for rent, since in held)
        return self.usd - spent - paid - reserved, reserved

    def _reserved(self, rent: Rent, start: int, now: int) -> float:
        """The cost of another lease at the highest possible price."""
        ceiling = rent.highest_price
        soon, later = (
            usd(self.billing.bill(Life(start, until, End.LEFT), ceiling).amount) for until in (now, now + self.lease)
        )
        return rent.machines * (later - soon)
