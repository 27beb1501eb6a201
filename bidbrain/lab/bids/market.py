"""A generated market in which each host runs the highest bid, and renters on demand take a host
from any bid.

What is assumed: hosts ask for a share of their price on demand at least. Rivals arrive at random,
look at a few hosts, take the one with the lowest minimum bid if they can pay it, and stay for a
while, running or not. Some bid the minimum, some add a margin, some bid all that they can pay.
Renters on demand look at a few hosts and take the cheapest. Demand may swing for all hosts
together. Nothing of this is known to who bids; rivals see our bid, and avoid the host or outbid it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, inf
from typing import ClassVar

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.outbid.record import HostRecord
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

STEP = NANOS_PER_DOLLAR // 1000
"""How much higher than another one a bid must be to win, as on Vast.ai."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The rates are per host and hour, the prices are shares of the median price on demand.

    `floors` is the range of what hosts ask at least. `minimum` and `margin` are the shares of
    rivals who bid the minimum, and who add up to `adds` to it; the others bid what they can pay:
    `pays`, with a spread. `swing` is the standard deviation of log demand, which changes within
    `swing_hours`.
    """

    hosts: int = 20
    on_demand_usd: float = 0.50
    prices_spread: float = 0.15
    floors: tuple[float, float] = (0.25, 0.6)
    rivals: float = 0.05
    rival_stays: float = 4.0
    minimum: float = 0.4
    margin: float = 0.3
    adds: float = 0.3
    pays: float = 0.7
    pays_spread: float = 0.3
    on_demand: float = 0.02
    on_demand_stays: float = 6.0
    looks_at: int = 6
    swing: float = 0.0
    swing_hours: float = 6.0
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.looks_at < 1:
            raise ValueError("a market needs a host, and its renters look at one or more")
        least_part = min(self.rivals, self.on_demand, self.adds, self.swing, *self.floors)
        if least_part < 0 or self.floors[0] > self.floors[1]:
            raise ValueError(
                "rates, shares and the swing are not below 0, and floors go from low to high"
            )
        least_positive = min(
            self.on_demand_usd, self.pays, self.rival_stays, self.on_demand_stays, self.swing_hours
        )
        if least_positive <= 0:
            raise ValueError("prices and the times that renters stay are above 0")


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """A renter who comes at an hour: the seed of the hosts it looks at, what it can pay (infinite:
    on demand), the margin that it adds to a minimum bid (None: it bids what it can pay), and how
    long it stays."""

    hour: float
    looks: int
    pays: float
    adds: float | None
    stays: float


@dataclass(slots=True)
class MarketHost:
    """A host: its price on demand and lowest bid, rivals' bids with the hour at which they leave,
    and until when it is rented on demand."""

    on_demand: int
    floor: int
    bids: list[tuple[int, float]] = field(default_factory=list)
    taken_until: float = -inf


@dataclass(slots=True)
class OwnMachine:
    """Our machine: its host, its bid (None: on demand), whether it runs, the hour from which it is
    billed, and the dollars that it has cost by both rules: its bid, and what the host asks without
    it."""

    host: int
    bid: int | None
    billed_from: float
    runs: bool = True
    paid: float = 0.0
    cleared: float = 0.0


class GeneratedMarket:
    """The state of a market at an hour, and our machine in it. A seed brings the same rivals,
    whatever we do.
    """

    def __init__(self, assumed: Assumptions, seed: int, hours: float) -> None:
        chance = np.random.default_rng(seed)
        self.assumed = assumed
        self.hour = 0.0
        spread = np.exp(chance.normal(0, assumed.prices_spread, assumed.hosts))
        usd = assumed.on_demand_usd * spread
        floors = usd * chance.uniform(*assumed.floors, assumed.hosts)
        nanos = np.rint(np.column_stack([usd, floors]) * NANOS_PER_DOLLAR).astype(np.int64)
        self.hosts = [MarketHost(price, floor) for price, floor in nanos.tolist()]
        self.own: OwnMachine | None = None
        self._arrivals = _arrivals(assumed, hours, chance)[::-1]
        self._leaving: list[float] = []

    def least_bid(self, host: int, *, ours: bool = True) -> int:
        """The lowest bid that would run on a host now; without ours, as if it were not there."""
        at = self.hosts[host]
        own = self.own
        highest = max((bid for bid, _ in at.bids), default=0)
        if ours and own is not None and own.host == host and own.bid is not None:
            highest = max(highest, own.bid)
        return max(at.floor, highest + STEP if highest else 0)

    def listed(self) -> HostRecord:
        """A snapshot: the hosts that are not rented on demand."""
        at = round(self.hour * HOUR)
        hosts = enumerate(self.hosts)
        rows = []
        for number, host in hosts:
            is_taken = self._is_taken(number)
            if not is_taken:
                least = self.least_bid(number)
                rows.append((at, number, least, host.on_demand))
        return HostRecord.of(rows)

    def rent(self, host: int, bid: int | None, loading_hours: float) -> OwnMachine:
        """Orders a machine, in place of the one before; it is billed once its image is loaded."""
        self.own = OwnMachine(host, bid, self.hour + loading_hours)
        self.own.runs = self._wins(self.own)
        return self.own

    def change_bid(self, own: OwnMachine, bid: int) -> None:
        """The new bid counts from now on."""
        own.bid = bid
        own.runs = self._wins(own)

    def give_up(self) -> None:
        """Ends our machine."""
        self.own = None

    def advance(self, until: float) -> float:
        """Moves on to an hour, or to the moment at which our machine is paused or runs again; the
        hour that it is.
        """
        before = self.own is not None and self.own.runs
        while self.hour < until:
            arrives = inf
            if self._arrivals:
                arrives = self._arrivals[-1].hour
            leaves = self._leaving[0] if self._leaving else inf

            # What the own machine costs until then.
            moment = min(arrives, leaves, until)
            own = self.own
            if own is not None and own.runs:
                since = max(self.hour, own.billed_from)
                hours = max(moment - since, 0.0) / NANOS_PER_DOLLAR
                price = self.hosts[own.host].on_demand if own.bid is None else own.bid
                own.paid += hours * price
                others_bid = self.least_bid(own.host, ours=False)
                own.cleared += hours * min(price, others_bid)
            self.hour = moment

            if self.hour == leaves:
                heappop(self._leaving)
                for host in self.hosts:
                    host.bids = [bid for bid in host.bids if bid[1] > self.hour]
            elif self.hour == arrives:
                self._admit(self._arrivals.pop())

            if self.own is not None:
                self.own.runs = self._wins(self.own)
                if self.own.runs is not before:
                    break

        return self.hour

    def _admit(self, arrival: Arrival) -> None:
        """A renter looks at some hosts and takes the one that is cheapest to it, if it can pay."""
        chance = np.random.default_rng(arrival.looks)
        on_demand = arrival.pays == inf
        order = chance.permutation(len(self.hosts))
        seen = order[: self.assumed.looks_at].tolist()
        own = None
        if self.own is not None and self.own.bid is None:
            own = self.own.host
        open_hosts = [host for host in seen if not self._is_taken(host) and host != own]
        if not open_hosts:
            return

        leaves = self.hour + arrival.stays
        if on_demand:
            cheapest = min(open_hosts, key=lambda host: self.hosts[host].on_demand)
            self.hosts[cheapest].taken_until = leaves
            heappush(self._leaving, leaves)
            return

        cheapest = min(open_hosts, key=self.least_bid)
        least = self.least_bid(cheapest)
        most_paid = (
            arrival.pays if arrival.adds is None else min(least * (1 + arrival.adds), arrival.pays)
        )
        bid = round(most_paid)
        if bid >= least:
            self.hosts[cheapest].bids.append((bid, leaves))
            heappush(self._leaving, leaves)

    def _is_taken(self, host: int) -> bool:
        return self.hosts[host].taken_until > self.hour

    def _wins(self, own: OwnMachine) -> bool:
        if own.bid is None:
            return True
        is_taken = self._is_taken(own.host)
        return not is_taken and own.bid >= self.least_bid(own.host, ours=False)


def _arrivals(assumed: Assumptions, hours: float, chance: np.random.Generator) -> list[Arrival]:
    """All renters of some hours, in order."""
    # Demand by hour, relative to its mean: the exponential of a process that forgets itself within
    # `swing_hours`.
    size = int(np.ceil(hours)) + 1
    keeps = exp(-1 / assumed.swing_hours)
    log = np.empty(size)
    log[0] = chance.normal()
    for hour in range(1, size):
        kept = keeps * log[hour - 1]
        noise = (1 - keeps**2) ** 0.5
        log[hour] = kept + noise * chance.normal()
    demand: Floats = np.exp(assumed.swing * log - assumed.swing**2 / 2)

    arrivals = list[Arrival]()
    for rate, on_demand in ((assumed.rivals, False), (assumed.on_demand, True)):
        counts = chance.poisson(rate * assumed.hosts * demand)
        hours_of_arrivals = np.arange(demand.size)
        within_hour = chance.random(int(counts.sum()))
        begins = np.repeat(hours_of_arrivals, counts) + within_hour
        arrivals += [
            _arrival(assumed, hour, chance, on_demand=on_demand) for hour in begins.tolist()
        ]

    return sorted(arrivals)


def _arrival(
    assumed: Assumptions, hour: float, chance: np.random.Generator, *, on_demand: bool
) -> Arrival:
    looks = int(chance.integers(1 << 31))
    if on_demand:
        stay = chance.exponential(assumed.on_demand_stays)
        return Arrival(hour, looks, inf, None, float(stay))

    style = chance.random()
    adds = 0.0 if style < assumed.minimum else float(chance.uniform(0, assumed.adds))
    usual = assumed.on_demand_usd * assumed.pays
    drawn = chance.normal(0, assumed.pays_spread)
    pays = usual * exp(drawn) * NANOS_PER_DOLLAR

    stays = float(chance.exponential(assumed.rival_stays))
    bidding = assumed.minimum + assumed.margin
    added = adds if style < bidding else None
    return Arrival(hour, looks, pays, added, stays)
