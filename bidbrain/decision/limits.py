"""How many machines a job may hold, and purchases cut to fit."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf

from bidbrain.strategies.base import Holding, Rent
from pricing_data.market import Market


@dataclass(frozen=True, slots=True)
class CommonQuota:
    """An amount that machines of some markets share: `uses` is what one machine of each takes of it."""

    amount: int
    uses: Mapping[Market, int]

    def free(self, market: Market, held: Mapping[Market, int], unlimited: int) -> int:
        """How many more machines of a market fit into the quota; `unlimited` if they do not count against the quota."""
        if not (each := self.uses.get(market, 0)):
            return unlimited
        return (self.amount - sum(self.uses.get(other, 0) * count for other, count in held.items())) // each


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Fewest and most machines, the most spot machines of each type, and whether all must be in one market.

    A gang's machines are together: the gang is rented as a whole, with `most` machines, and goes on with `least`.
    `on_demand` are the most on-demand machines in markets where quotas do not hold as many as the job may have, and
    `shared` the quotas that several of these markets share. `spot` are the job's parts of the quotas of spot machines.
    """

    least: int
    most: int
    by_type: Mapping[str, int]
    together: bool = False
    on_demand: Mapping[Market, int] = field(default_factory=dict)
    shared: tuple[CommonQuota, ...] = ()
    spot: tuple[CommonQuota, ...] = ()

    @property
    def nodes(self) -> int:
        """The machines without which a gang does nothing; 0 for a job that works with any number."""
        return self.least if self.together else 0

    @property
    def shrinks(self) -> bool:
        """Whether a gang continues without some of its machines."""
        return self.together and self.least < self.most

    def rentable(self, on_demand: Rent) -> Rent:
        """The part of on-demand machines that quotas hold; none if the job cannot work with so few."""
        machines = self.on_demand.get(on_demand.offer.market, on_demand.machines)
        if machines >= on_demand.machines >= self.least:
            return on_demand
        machines = min(machines, on_demand.machines)
        return replace(on_demand, machines=machines if machines >= self.least else 0)


def baseline_machines(most_nu: float, nu: float, limits: MachineLimits) -> int:
    """How many machines of a type do `most_nu` work per hour, within a job's limits; a gang has all it may have."""
    if limits.together:
        return limits.most
    return min(max(ceil(most_nu / nu - 1e-9), limits.least), limits.most)


@dataclass(slots=True)
class PurchaseRoom:
    """How many machines and dollars are still free while purchases are cut to fit.

    `committed_usd` is what one machine of a purchase can cost until it may be returned; `held` counts machines by
    market and whether they are spot machines, and `leaving` those that only quotas still count.
    """

    limits: MachineLimits
    usd_left: float
    committed_usd: Callable[[Rent], float]
    machines: int = 0
    held: Counter[tuple[Market, bool]] = field(default_factory=Counter)
    leaving: Mapping[tuple[Market, bool], int] = field(default_factory=dict)

    def without(self, holdings: Iterable[Holding]) -> "PurchaseRoom":
        """The room that is left next to holdings."""
        for holding in holdings:
            self._count(holding.rent, holding.rent.machines)
        return self

    def _count(self, rent: Rent, machines: int) -> None:
        self.machines += machines
        self.held[rent.offer.market, rent.spot] += machines

    def free(self, rent: Rent) -> int:
        """How many machines of a purchase fit."""
        market, limits = rent.offer.market, self.limits
        counted = self._counted(spot=rent.spot)
        free = [limits.most - self.machines]
        if rent.spot:
            of_type = sum(self.held[place, True] for place in counted if place.instance_type == market.instance_type)
            free.append(limits.by_type.get(market.instance_type, limits.most) - of_type)
        elif market in limits.on_demand:
            free.append(limits.on_demand[market] - counted[market])
        free += [quota.free(market, counted, free[0]) for quota in (limits.spot if rent.spot else limits.shared)]
        if self.usd_left < inf:
            free.append(floor(self.usd_left / self.committed_usd(rent)))
        return max(min(free), 0)

    def _counted(self, *, spot: bool) -> Counter[Market]:
        """The machines that count against quotas."""
        counted: Counter[Market] = Counter()
        for (market, is_spot), count in (*self.held.items(), *self.leaving.items()):
            counted[market] += count if is_spot is spot else 0
        return counted

    def order(self, rent: Rent, refused: int) -> Rent:
        """A gang's next order in a market that refused its last order, of `refused` machines; 0: none was refused.

        The gang asks for as many machines as it may have. A gang that also works with fewer halves, at each refusal,
        the machines that it could do without; after the smallest order it starts again with the largest.
        """
        fewest = max(self.limits.least - self.machines, 1)
        smaller = self.limits.shrinks and fewest < refused <= self.free(rent)
        return replace(rent, machines=(refused + fewest) // 2 if smaller else self.limits.most)

    def fill(self, rents: list[Rent]) -> list[Rent]:
        """Cuts the purchases to the room there is, or raises them to the job's minimum."""
        bought = [self._buy(rent, rent.machines) for rent in rents]
        for i, rent in enumerate(rents):
            short = self.limits.least - self.machines
            if short > 0:
                bought[i] = replace(rent, machines=bought[i].machines + self._buy(rent, short).machines)
        return [rent for rent in bought if rent.machines]

    def _buy(self, rent: Rent, wanted: int) -> Rent:
        machines = min(wanted, self.free(rent))
        self._count(rent, machines)
        self.usd_left -= machines * self.committed_usd(rent) if machines else 0.0
        return replace(rent, machines=machines)
