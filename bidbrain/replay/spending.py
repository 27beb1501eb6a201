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

    def left(self, start: int, now: int, spent: float, holdings: Iterable[Holding]) -> float:
        """What may still be committed, after `spent` dollars for machines that are gone."""
        held = sum(self._committed(one.rent, one.start, now) for one in holdings)
        reliable = 0.0 if self.reliable is None else self._committed(self.reliable, start, now)
        return self.usd - spent - held - reliable

    def _committed(self, rent: Rent, start: int, now: int) -> float:
        """The cost so far, and that of another lease at the highest possible price."""
        ceiling = rent.highest_price
        soon, later = (
            usd(self.billing.bill(Life(start, until, End.LEFT), ceiling).amount) for until in (now, now + self.lease)
        )
        return self.paid(rent, Life(start, now, End.LEFT)) + rent.machines * (later - soon)
