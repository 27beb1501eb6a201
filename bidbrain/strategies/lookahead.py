"""`lookahead`: the whole room as one allocation, at the bid that makes a unit of work cheapest when time has a price.

    price of work = (expected dollars for the hour + (reliable machines + price of time) x expected hours alive)
                    / expected work until the hour ends or the machines are taken

It differs from the published strategy in what it believes about the coming hour (`lookahead_hour`), and in this:

- The room is bought as one allocation. An eviction then refunds all of it, and its standstill passes while the next
  machines start up, so that lambda costs nothing.
- A short life costs little, so that the cheapest bids are the lowest, and slow: the price of time decides how often to
  gamble for a refund. It is the job's own setting; it traces the frontier between cost and run time.
- Who survives the hour needs no start-up for the next, and stands in a market that has become calm; that is credited.
- Room that is left is filled where the work beside it is worth its price, and an eviction there stops all the rest.
- When everything is dear, the baseline on demand is a choice like the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np

from bidbrain.eviction.crossing import Floats
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.lookahead_hour import DISTANCES, NextHour, place_of
from bidbrain.strategies.proteus import Application
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, format_usd

RENEW_BEFORE = 120 * SECOND
LOOK_AGAIN = 2 * MINUTE
SURVIVAL_CREDIT = 2.0
"""To have survived the hour is worth so many start-ups."""
FILLING_WORTH = 0.7
"""Work beside the main allocation counts for this share: whenever that one starts anew, what runs stops it by sigma."""


@dataclass(frozen=True, slots=True)
class Best:
    """The purchase with the lowest price of work, in dollars per unit."""

    usd_per_work: float
    rent: Rent | None


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The project's own strategy. `usd_per_hour` is the price of the job's time."""

    offers: tuple[Offer, ...]
    hours: Mapping[Market, NextHour]
    application: Application
    usd_per_hour: float
    name: str = "lookahead"
    _nu: Floats = field(init=False, repr=False)
    _survival: Floats = field(init=False, repr=False)
    _alive: Floats = field(init=False, repr=False)
    _useful: Floats = field(init=False, repr=False)
    _paid: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = [self.hours[offer.market] for offer in self.offers]
        for name, rows in (
            ("_survival", [hour.survival for hour in known]),
            ("_alive", [hour.alive for hour in known]),
            ("_useful", [hour.useful for hour in known]),
            ("_paid", [hour.paid_new for hour in known]),
        ):
            object.__setattr__(self, name, np.array(rows, dtype=float).reshape(len(known), DISTANCES.size))
        object.__setattr__(self, "_nu", np.array([offer.nu for offer in self.offers], dtype=float))

    def decide(self, situation: Situation) -> Decision:
        """Renewals that are due, and a purchase when most of the room is free."""
        now = situation.now
        prices = np.array([situation.price(offer) for offer in self.offers], dtype=float)
        staying = [holding for holding in situation.holdings if holding.leaves_at is None]
        ending = [holding for holding in staying if _hour_end(holding, now) - now <= RENEW_BEFORE + SECOND]
        dropped = [holding for holding in ending if not self._keeps(holding, staying, situation, prices)]
        returns = tuple(Return(holding.allocation, _hour_end(holding, now)) for holding in dropped)
        rents, reason = self._buy(situation, prices)
        looks = [_look(holding, now) for holding in staying if holding not in dropped]
        looks += [now + HOUR - RENEW_BEFORE] * bool(rents)
        told = f"{len(ending) - len(dropped)} of {len(ending)} allocations renewed; {reason}"
        return Decision((*returns, *rents), min(looks, default=now + LOOK_AGAIN), told)

    def _keeps(self, holding: Holding, staying: list[Holding], situation: Situation, prices: Floats) -> bool:
        """Whether another hour beats giving an allocation back: the largest against the best purchase in its place,
        what runs beside it by what its work is worth."""
        paid, alive, survival = self._expected(holding, situation)
        dollars = paid * holding.rent.machines * _price(holding.rent, situation) / NANOS_PER_DOLLAR
        held = sum(other.nu for other in staying)
        if holding is not max(staying, key=lambda other: other.nu):
            worth = FILLING_WORTH * self._best(situation.most_nu, situation, prices).usd_per_work
            stall = (1 - survival) * self.application.eviction_hours - self.application.resize_hours
            return worth * (holding.nu * alive - stall * held) >= dollars
        room = situation.most_nu - held + holding.nu
        renewed = self._price_of_work(dollars, alive, holding.nu * alive, survival * holding.nu)
        return bool(renewed <= self._best(room, situation, prices).usd_per_work)

    def _expected(self, holding: Holding, situation: Situation) -> tuple[float, float, float]:
        """Of an allocation's next hour: hours billed and alive, and the chance to survive it."""
        bid = holding.rent.bid
        if bid is None:
            return 1.0, 1.0, 1.0
        hour = self.hours[holding.rent.offer.market]
        at = place_of(bid - situation.price(holding.rent.offer))
        return float(hour.paid_old[at]), float(hour.alive[at]), float(hour.survival[at])

    def _buy(self, situation: Situation, prices: Floats) -> tuple[list[Rent], str]:
        """One allocation as large as there is room, and beside it what pays."""
        room = situation.most_nu - sum(holding.nu for holding in situation.holdings)
        if room <= situation.most_nu / 2:
            return [], "the room is taken"
        best = self._best(room, situation, prices)
        if best.rent is None:
            return [], "nothing can be rented"
        main = best.rent
        rents = [main, *self._filling(room, main, best.usd_per_work, prices)]
        bid = "on demand" if main.bid is None else f"under a bid of ${format_usd(main.bid)}"
        told = f"{main.machines} machines of {main.offer.market} {bid}: ${best.usd_per_work:.6f} per unit of work"
        return rents, f"{told}, time at ${self.usd_per_hour:.2f} an hour; {len(rents) - 1} allocations beside it"

    def _best(self, room: float, situation: Situation, prices: Floats) -> Best:
        """The market and bid with the lowest price of work, or the baseline's machines on demand."""
        machines = np.floor(room / self._nu)[:, None]
        nu, dollars = machines * self._nu[:, None], machines * prices[:, None] / NANOS_PER_DOLLAR
        costs = self._price_of_work(dollars * self._paid, self._alive, nu * self._useful, nu * self._survival)
        offer = situation.baseline.offer
        count = floor(room / offer.nu)
        useful = max(1 - self.application.startup_hours, 0.0)
        on_demand = self._price_of_work(
            count * offer.on_demand / NANOS_PER_DOLLAR, 1.0, count * offer.nu * useful, count * offer.nu
        )
        least = Best(float(on_demand), Rent(offer, count, None) if count else None)
        if costs.size and costs.min() < least.usd_per_work:
            row, column = divmod(int(np.argmin(costs)), DISTANCES.size)
            bid = int(prices[row]) + int(DISTANCES[column])
            return Best(float(costs[row, column]), Rent(self.offers[row], int(machines[row, 0]), bid))
        return least

    def _price_of_work(
        self, dollars: Floats | float, alive: Floats | float, work: Floats | float, surviving_nu: Floats | float
    ) -> Floats:
        """Dollars per unit of work; infinite where none is done."""
        app = self.application
        time = (app.reliable_usd_per_hour + self.usd_per_hour) * np.asarray(alive)
        credited = np.asarray(work + SURVIVAL_CREDIT * app.startup_hours * np.asarray(surviving_nu))
        some = np.asarray(work) > 0
        cost: Floats = np.where(some, (dollars + time) / np.where(some, credited, 1.0), inf)
        return cost

    def _filling(self, room: float, main: Rent, usd_per_work: float, prices: Floats) -> list[Rent]:
        """Allocations in the room beside the main one, each the most valuable, while one is worth its price."""
        room -= main.machines * main.offer.nu
        main_nu = main.machines * main.offer.nu
        stall = (1 - self._survival) * self.application.eviction_hours * main_nu
        bought: list[Rent] = []
        while self._nu.size and room >= self._nu.min():
            machines = np.floor(room / self._nu)[:, None]
            work = machines * self._nu[:, None] * self._useful - stall
            gain = FILLING_WORTH * usd_per_work * work - machines * prices[:, None] / NANOS_PER_DOLLAR * self._paid
            gain = np.where(machines > 0, gain, -inf)
            row, column = divmod(int(np.argmax(gain)), DISTANCES.size)
            if not gain[row, column] > 0:
                break
            bid = int(prices[row]) + int(DISTANCES[column])
            bought.append(Rent(self.offers[row], int(machines[row, 0]), bid))
            room -= bought[-1].machines * self._nu[row]
        return bought


def _price(rent: Rent, situation: Situation) -> int:
    return rent.offer.on_demand if rent.bid is None else situation.price(rent.offer)


def _hour_end(holding: Holding, now: int) -> int:
    return holding.start + ((now - holding.start) // HOUR + 1) * HOUR


def _look(holding: Holding, now: int) -> int:
    """When the next hour of an allocation is to be decided."""
    due = _hour_end(holding, now) - RENEW_BEFORE
    return due if due > now else due + HOUR
