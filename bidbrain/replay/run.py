"""A job to replay with its budget, and what became of it: the machines that were rented, what they
cost, and when the work was done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bidbrain.billing import Bill, BillingRule, End, Life, Prices, fixed_price, usd
from bidbrain.replay.market import Warnings
from bidbrain.strategies.base import Holding, Offer, Rent, gang_works
from bidbrain.strategies.spells import SpellOutlook
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR


@dataclass(frozen=True, slots=True)
class Tenure:
    """Machines of one allocation that ended together, from start to end."""

    rent: Rent
    start: int
    ready: int
    end: int
    ended: End

    @property
    def life(self) -> Life:
        """The life of each of its machines, for billing."""
        return Life(self.start, self.end, self.ended)


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
    _billed: dict[tuple[Rent, int], tuple[int, int]] = field(
        default_factory=dict, init=False, repr=False
    )

    def paid(self, rent: Rent, life: Life) -> float:
        """The dollars that the machines of a purchase cost over a life."""
        return rent.machines * usd(self._amount(rent, life))

    def _amount(self, rent: Rent, life: Life) -> int:
        return bill_of_machine(rent, life, self.billing, self.histories).amount

    def left(
        self, start: int, now: int, spent: float, holdings: Iterable[Holding]
    ) -> tuple[float, float]:
        """The dollars that may still be committed, after `spent` dollars for machines that are
        gone, and the dollars kept back for the leases of machines that are held."""
        held = [(holding.rent, holding.start) for holding in holdings]
        if self.reliable is not None:
            held.append((self.reliable, start))

        # Another lease costs at most the highest possible price.
        reservations = []
        for rent, begin in held:
            since = begin + _settled(begin, now)
            soon, later = (
                self.billing.bill(Life(since, until, End.LEFT), rent.highest_price).amount
                for until in (now, now + self.lease)
            )
            reservations.append(rent.machines * usd(later - soon))

        reserved = sum(reservations)

        # The dollars owed if the machines are returned now; their hours but the last two are billed
        # once.
        amounts = []
        for rent, begin in held:
            billed, nanos = self._billed.get((rent, begin), (begin, 0))
            upto = begin + _settled(begin, now)
            if upto > billed:
                nanos += self._amount(rent, Life(billed, upto, End.LEFT))
                self._billed[rent, begin] = upto, nanos
            last = self._amount(rent, Life(upto, now, End.LEFT))
            amounts.append(rent.machines * usd(nanos + last))

        paid = sum(amounts)
        return self.usd - spent - paid - reserved, reserved


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """A job to replay: work (nu x microseconds) from a start until it is done or the limit is
    reached.

    Without a budget, spending is not counted. A gang needs `nodes` machines to work, and uses up to
    `most_nodes`, if that is more; 0 nodes are no gang. With `scaling` s, n machines do n^(1 + s)
    times the work of one; an offer's `nu` is the work of a machine among all that may be rented.
    `saved_gb` is the size of a checkpoint that moves with the job. A `timed` job ends at its limit,
    however much work is done by then. A job with a `watched` record of availability knows its
    spells, and decides again at each change of capacity. `deadline` is what situations say of it; a
    `Decider` knows its own. With `warnings`, machines that a price is to evict do no more work once
    they are warned, and their market offers none until they are gone.
    """

    start: int
    work: float
    limit: int
    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float
    budget: ReplayedBudget | None = None
    nodes: int = 0
    scaling: float = 0.0
    saved_gb: float | None = None
    most_nodes: int = 0
    enough: Callable[[int, Sequence[Tenure], Iterable[Tenure]], bool] | None = None
    watched: SpellOutlook | None = None
    deadline: int | None = None
    timed: bool = False
    warnings: Warnings | None = None

    def rate(self, working: Sequence[Holding]) -> float:
        """Work per hour of machines that have started up; a gang uses as many as it has nodes, the
        fastest ones.
        """
        if self.nodes:
            speeds = (
                holding.rent.offer.nu for holding in working for _ in range(holding.rent.machines)
            )
            each = sorted(speeds, reverse=True)
            if gang_works(working, self.nodes):
                return sum(each[: max(self.nodes, self.most_nodes)])
            return 0.0

        nu = sum(holding.nu for holding in working)
        if self.scaling and nu:
            return nu * float((nu / self.most_nu) ** self.scaling)
        return nu


@dataclass(frozen=True, slots=True)
class Run:
    """A replayed job. `end` is None if it was not finished by its limit."""

    job: ReplayedJob
    end: int | None
    tenures: tuple[Tenure, ...]

    @property
    def evictions(self) -> int:
        """Number of evictions; machines of one allocation that are evicted together count once."""
        return sum(tenure.ended is End.EVICTED for tenure in self.tenures)


def bill_of_machine(
    rent: Rent, life: Life, billing: BillingRule, histories: Mapping[Market, PriceSeries]
) -> Bill:
    """The bill of each machine of a purchase over a life."""
    fixed = fixed_price(rent.offer.market.cloud, rent.bid, rent.offer.on_demand)
    prices: Prices = histories[rent.offer.market] if fixed is None else fixed
    return billing.bill(life, prices)


def _settled(start: int, now: int) -> int:
    """Whole hours of a life that no later bill changes: only in its first hour is a machine free,
    or owes a minimum.
    """
    return max((now - start) // HOUR - 1, 0) * HOUR
