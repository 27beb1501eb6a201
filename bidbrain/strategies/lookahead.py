"""`lookahead`: ranks bids by the expected cost of the next hour, and rents everything as one
allocation.

    price of work = (expected dollars for the hour + (reliable machines + price of time) x expected hours alive)
                    / expected work until the hour ends or the machines are evicted

It differs from the published strategy in its model of the next hour (`NextHour`), and in these
rules:

- Everything is bought as one allocation. An eviction then refunds all of it, and its pause passes
  while the next machines start up, so that lambda costs nothing.
- A short life costs little, so the lowest and slowest bids are the cheapest: the price of time
  decides how often to gamble for a refund. This price is a setting of the job, and traces the
  frontier between cost and run time.
- A machine that survives the hour needs no start-up for the next, and its market has turned out
  calm; both are credited.
- Remaining room is filled where the additional work is worth its price; an eviction there pauses
  the whole job.
- When every bid is too expensive, the baseline on demand competes like any other choice.
- Only bids that may be made are compared; the highest of them counts as the step of the grid below
  it. A machine that is evicted so soon that pauses take all of its useful time does no work, even
  if it is refunded.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import BillingRule, expected_seconds
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Holding,
    Offer,
    Rent,
    Return,
    Situation,
    described,
)
from bidbrain.strategies.proteus import HIGHEST_DELTA, LOWEST_DELTA, RENEW_BEFORE, JobCosts
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND

# A bid at the price itself is allowed too: a machine is evicted when the price is strictly above
# its bid.
DISTANCES: Ints = np.append(0, np.geomspace(LOWEST_DELTA, 10 * HIGHEST_DELTA, 40).round()).astype(
    np.int64
)
"""Distances of a bid above the price, ascending."""
_DISTANCES: list[int] = DISTANCES.tolist()

# Bids close to the price are mostly evicted in the first minutes.
_AGES: Ints = (
    np.array([0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60], dtype=np.int64)
    * MINUTE
)


@dataclass(frozen=True, slots=True, eq=False)
class NextHour:
    """The prospects of a machine in the next hour. For each of `DISTANCES` of its bid above the
    price: the probability of surviving the hour, hours alive, useful hours of a machine that starts
    up first, and billed hours of a new machine and of one that has run before.

    Everything follows from the survival curve S(t) over the hour: the share of past moments from
    which such a bid would have held for t (price crossing), times the survival of capacity
    evictions. The expected time alive is its integral, and the expected useful time its integral
    after the start-up. Eq. 4.2 of Harlap uses the median time to eviction instead of the integral
    and subtracts the start-up; but a machine evicted while starting up loses no work by it, and
    bids close to the price are often evicted then.
    """

    survival: Floats
    alive: Floats
    useful: Floats
    paid_new: Floats
    paid_old: Floats

    @classmethod
    def of(
        cls, history: PriceSeries, billing: BillingRule, startup_hours: float, hazard: Hazard | None
    ) -> "NextHour":
        """The figures of a history, under a billing rule and, where one is known, a hazard of
        capacity evictions.
        """
        held = []
        for age in _AGES[1:]:
            history_at_age = CrossingHistory(history, int(age))
            held.append(1 - history_at_age.betas(DISTANCES))
        # Each age counts the starts whose window the history still covers, so tiny rises can occur.
        certain = np.ones(DISTANCES.size)
        columns = [certain, *held]
        joined = np.column_stack(columns)
        crossing: Floats = np.minimum.accumulate(joined, axis=1)

        # The share of machines that capacity evictions leave alive at each age.
        risks = [
            0.0 if hazard is None else hazard.cumulative(0, float(age) / HOUR)[0] for age in _AGES
        ]
        curve = crossing * np.exp(-np.array(risks))
        survival = curve[:, -1]
        useful = _area(curve, startup_hours)
        paid_new = _paid(billing, curve, 0)
        paid_old = _paid(billing, curve, HOUR)
        return cls(
            survival=survival,
            alive=_area(curve, 0.0),
            useful=useful,
            paid_new=paid_new,
            paid_old=paid_old,
        )


def place_of(distance: int) -> int:
    """Index of the largest of `DISTANCES` that is not above this one."""
    return max(bisect_right(_DISTANCES, distance) - 1, 0)


def _area(curve: Floats, since_hours: float) -> Floats:
    """The integral of each curve from an age to the end of the hour, in hours."""
    since = min(since_hours, 1.0)
    hours = np.unique(np.append(_AGES / HOUR, since))
    interpolated = [np.interp(hours, _AGES / HOUR, row) for row in curve]
    rows = np.array(interpolated)
    heights = rows[:, hours >= since]
    widths = hours[hours >= since]
    area: Floats = np.trapezoid(heights, widths, axis=1)
    return area


def _paid(billing: BillingRule, curve: Floats, age: int) -> Floats:
    """Expected billed hours of the next hour for machines of an age."""

    def survival(ages: Floats) -> Floats:
        values = [np.interp(ages - age, _AGES, row) for row in curve]
        return np.column_stack(values)

    return expected_seconds(billing, age, HOUR, survival) / 3600


SURVIVAL_CREDIT = 2.0
"""Surviving the hour is worth this many start-ups."""
FILLING_WORTH = 0.7
"""Work next to the main allocation counts for this share: each restart of the main allocation
pauses it for sigma."""


_FilledRoom = tuple[Floats, Floats, Floats]
"""The purchase of each offer (row) and bid (column) that fills a room, whatever the prices are:
machines, dollars for the time alive, and the work that counts. The dollars are infinite where no
work is expected."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Ranks purchases by price of work; `usd_per_hour` is the price of the job's time."""

    offers: tuple[Offer, ...]
    hours: Mapping[Market, NextHour]
    application: JobCosts
    usd_per_hour: float
    name: str = "lookahead"
    _nu: Floats = field(init=False, repr=False)
    _survival: Floats = field(init=False, repr=False)
    _alive: Floats = field(init=False, repr=False)
    _useful: Floats = field(init=False, repr=False)
    _paid: Floats = field(init=False, repr=False)
    _rooms: dict[float, _FilledRoom] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        known = [self.hours[offer.market] for offer in self.offers]
        for name, rows in (
            ("_survival", [hour.survival for hour in known]),
            ("_alive", [hour.alive for hour in known]),
            ("_useful", [hour.useful for hour in known]),
            ("_paid", [hour.paid_new for hour in known]),
        ):
            values = np.array(rows, dtype=float)
            table = values.reshape(len(known), DISTANCES.size)
            object.__setattr__(self, name, table)

        speeds = [offer.nu for offer in self.offers]
        nu = np.array(speeds, dtype=float)
        object.__setattr__(self, "_nu", nu)

    def decide(self, situation: Situation) -> Decision:
        """Renews allocations whose hour ends, and buys when at least half of the room is free."""
        now = situation.now
        listed = [situation.price(offer) for offer in self.offers]
        prices = np.array(listed, dtype=float)
        distances = DISTANCES.astype(np.float64)
        bids: Floats = prices[:, None] + distances
        if situation.highest_bid is not None:
            highest = [situation.highest_bid(offer) for offer in self.offers]
            capped = np.array(highest, dtype=float)
            caps = capped[:, None]
            # The highest bid that may be made takes the place of the last step below it.
            higher = bids[:, 1:]
            no_bid = np.full(prices.shape, inf)
            above = np.column_stack([higher, no_bid])
            at_most_cap = np.where(above > caps, caps, bids)
            bids = np.where(bids > caps, inf, at_most_cap)

        staying = [holding for holding in situation.holdings if holding.leaves_at is None]
        ending = [
            holding for holding in staying if holding.hour_end(now) - now <= RENEW_BEFORE + SECOND
        ]
        dropped = [
            holding
            for holding in ending
            if not self._keeps(holding, staying, situation, prices, bids)
        ]

        returning = (Return(holding.allocation, holding.hour_end(now)) for holding in dropped)
        returns = tuple(returning)
        rents, reason = self._buy(situation, prices, bids)
        looks = [now + HOUR - RENEW_BEFORE] * bool(rents)

        for holding in staying:
            if holding not in dropped:
                due = holding.hour_end(now) - RENEW_BEFORE
                looks.append(due if due > now else due + HOUR)

        if ending:
            reason = f"renew {len(ending) - len(dropped)} of {len(ending)} allocations; {reason}"

        next_look = min(looks, default=now + LOOK_AGAIN)
        return Decision((*returns, *rents), next_look, reason)

    def _keeps(
        self,
        holding: Holding,
        staying: list[Holding],
        situation: Situation,
        prices: Floats,
        bids: Floats,
    ) -> bool:
        """Whether to pay for another hour. The largest allocation competes with the best purchase
        in its place; smaller ones must be worth their price."""
        offer = holding.rent.offer
        bid = holding.rent.bid
        # The next hour of the allocation: the price, hours billed, hours alive, and the chance of
        # surviving it.
        price = offer.on_demand
        paid = 1.0
        alive = 1.0
        survival = 1.0
        if bid is not None:
            price = situation.price(offer)
            hour = self.hours[offer.market]
            at = place_of(bid - price)
            paid = float(hour.paid_old[at])
            alive = float(hour.alive[at])
            survival = float(hour.survival[at])

        dollars = paid * holding.rent.machines * price / NANOS_PER_DOLLAR
        held = sum(other.nu for other in staying)
        if holding is not max(staying, key=lambda other: other.nu):
            usd_per_work, _ = self._best(situation.most_nu, situation, prices, bids)
            worth = FILLING_WORTH * usd_per_work
            stall = (1 - survival) * self.application.eviction_hours - self.application.resize_hours
            return worth * (holding.nu * alive - stall * held) >= dollars

        room = situation.most_nu - held + holding.nu
        surviving = survival * holding.nu
        renewed = self._price_of_work(dollars, alive, holding.nu * alive, surviving)
        usd_per_work, _ = self._best(room, situation, prices, bids)
        return renewed <= usd_per_work

    def _buy(self, situation: Situation, prices: Floats, bids: Floats) -> tuple[list[Rent], str]:
        """One allocation that fills the room, and smaller ones that pay next to it."""
        held = sum(holding.nu for holding in situation.holdings)
        room = situation.most_nu - held
        if room < situation.most_nu / 2:
            return [], "no room for more machines"

        usd_per_work, main = self._best(room, situation, prices, bids)
        if main is None:
            return [], "no machine can be rented"

        # Allocations for the room next to the main one, most valuable first, as long as they are
        # worth their price.
        rents = [main]
        main_nu = main.machines * main.offer.nu
        room -= main_nu
        stall = (1 - self._survival) * self.application.eviction_hours * main_nu
        while self._nu.size and room >= self._nu.min():
            machines = np.floor(room / self._nu)[:, None]
            rate = machines * self._nu[:, None] * self._useful
            worth = FILLING_WORTH * usd_per_work * (rate - stall)
            usd = machines * prices[:, None] / NANOS_PER_DOLLAR
            possible = (machines > 0) & np.isfinite(bids)
            gain = np.where(possible, worth - usd * self._paid, -inf)
            row, column = divmod(int(np.argmax(gain)), DISTANCES.size)
            if not gain[row, column] > 0:
                break

            rents.append(Rent(self.offers[row], int(machines[row, 0]), int(bids[row, column])))
            room -= rents[-1].machines * self._nu[row]

        expected = f"(expected ${usd_per_work:.3g} per unit of work)"
        return rents, f"rent {' and '.join(map(described, rents))} {expected}"

    def _best(
        self, room: float, situation: Situation, prices: Floats, bids: Floats
    ) -> tuple[float, Rent | None]:
        """The lowest price of work, in dollars per unit, and the purchase with it: the baseline on
        demand is one.
        """
        offer = situation.baseline.offer
        count = floor(room / offer.nu)
        useful = max(1 - self.application.startup_hours, 0.0)
        hourly = count * offer.on_demand
        usd = hourly / NANOS_PER_DOLLAR
        work_done = count * offer.nu * useful
        on_demand = self._price_of_work(usd, 1.0, work_done, count * offer.nu)

        if self.offers:
            if room not in self._rooms:
                # A room without its prices, which are all that changes between most decisions.
                filling = np.floor(room / self._nu)[:, None]
                nu = filling * self._nu[:, None]
                useful_work = nu * self._useful
                eviction_hours = (1 - self._survival) * self.application.eviction_hours
                pauses = eviction_hours + self.application.resize_hours
                some = useful_work > nu * pauses
                surviving = nu * self._survival
                # The work that a machine does besides if it survives the hour.
                credit = SURVIVAL_CREDIT * self.application.startup_hours * surviving
                credited = np.where(some, useful_work + credit, 1.0)
                hour_usd = self.application.reliable_usd_per_hour + self.usd_per_hour
                hours_usd = np.where(some, hour_usd * self._alive, inf)
                self._rooms[room] = (filling, hours_usd, credited)

            machines, time_usd, work = self._rooms[room]
            dollars = machines * prices[:, None] / NANOS_PER_DOLLAR
            usd_in_all = dollars * self._paid + time_usd
            per_work = usd_in_all / work
            costs = np.where(np.isfinite(bids), per_work, inf)
            row, column = divmod(int(costs.argmin()), DISTANCES.size)
            if (cost := float(costs[row, column])) < on_demand:
                bid = int(bids[row, column])
                return cost, Rent(self.offers[row], int(machines[row, 0]), bid)

        return on_demand, Rent(offer, count, None) if count else None

    def _price_of_work(
        self, dollars: float, alive: float, work: float, surviving_nu: float
    ) -> float:
        """Dollars per unit of work; infinite where no work is expected."""
        if work > 0:
            # With the cost of the job's hour besides its spot machines.
            hour_usd = self.application.reliable_usd_per_hour + self.usd_per_hour
            credit = SURVIVAL_CREDIT * self.application.startup_hours
            return (dollars + hour_usd * alive) / (work + credit * surviving_nu)
        return inf
