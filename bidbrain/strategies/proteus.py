"""`proteus`: buys and keeps what lowers the footprint's expected cost per work (Harlap 4.3, Eq. 4.1-4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, prod

import numpy as np

from bidbrain.eviction.crossing import Floats
from bidbrain.strategies.base import REQUEST_VCPUS, Decision, Holding, Offer, Rent, Return, Situation, described
from bidbrain.strategies.odds import Odds, bid_deltas
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND

DECIDE_EVERY = 2 * MINUTE
RENEW_BEFORE = 120 * SECOND


@dataclass(frozen=True, slots=True)
class JobCosts:
    """The job's own costs: pauses lambda and sigma and start-up in hours, and dollars per hour for the reliable
    machines, which do no work."""

    eviction_hours: float
    resize_hours: float
    startup_hours: float
    reliable_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class AllocationTerms:
    """One allocation's terms in Eq. 4.1 to 4.3, or those of many candidates in arrays: expected dollars, probability of
    surviving the hour, expected useful hours times work per hour, and work per hour."""

    cost: float | Floats
    survival: float | Floats
    useful: float | Floats
    nu: float | Floats


@dataclass(frozen=True, slots=True)
class BidGrid:
    """Possible purchases: `terms` has a row for each offer and a column for each bid delta."""

    machines: Floats
    terms: AllocationTerms


@dataclass(frozen=True, slots=True)
class Proteus:
    """The published strategy. Evictions of allocations count as independent, even within one market.

    `request_nu` is the size of one request; the last request takes the remaining room. `deltas` are the bids
    considered, above the price.
    """

    offers: tuple[Offer, ...]
    odds: Mapping[Market, Odds]
    application: JobCosts
    request_nu: float = REQUEST_VCPUS
    deltas: tuple[int, ...] = bid_deltas(10)
    name: str = "proteus"
    _beta: Floats = field(init=False, repr=False)
    _useful_share: Floats = field(init=False, repr=False)
    _nu: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        read = [[self.odds[offer.market].at(delta) for delta in self.deltas] for offer in self.offers]
        table = np.array(read, dtype=float).reshape(len(self.offers), len(self.deltas), 2)
        beta, median = table[..., 0], table[..., 1]
        object.__setattr__(self, "_beta", beta)
        # A new machine starts up first; the rest of its hour is useful.
        useful = 1 - beta + beta * median - self.application.startup_hours
        object.__setattr__(self, "_useful_share", np.maximum(useful, 0.0))
        object.__setattr__(self, "_nu", np.array([offer.nu for offer in self.offers], dtype=float))

    def decide(self, situation: Situation) -> Decision:
        """Decides renewals that are due first, then buys while that lowers the cost per work."""
        now = situation.now
        staying = [holding for holding in situation.holdings if holding.leaves_at is None]
        prices = np.array([situation.price(offer) for offer in self.offers], dtype=float)
        terms = {holding.allocation: self._held(holding, situation, _hours_left(holding, now)) for holding in staying}
        actions: list[Rent | Return] = []
        for holding in staying:
            if _hours_left(holding, now) * HOUR <= RENEW_BEFORE + SECOND:
                renewed = self._held(holding, situation, 1.0)
                others = [term for number, term in terms.items() if number != holding.allocation]
                if self._keeps(holding, renewed, others, situation, prices, staying):
                    terms[holding.allocation] = renewed
                else:
                    del terms[holding.allocation]
                    actions.append(Return(holding.allocation, _hour_end(holding, now)))
        leaving = {action.allocation for action in actions if isinstance(action, Return)}
        kept = [holding for holding in staying if holding.allocation not in leaving]
        before = self._cost_per_work(_total(list(terms.values())), changes=False)
        bought, room, after = self._buy(list(terms.values()), float(before), situation, prices)
        reason = _reason(bought, float(before), after)
        return Decision((*actions, *bought), self._next_look(now, kept, bought, room), reason)

    def _keeps(
        self,
        holding: Holding,
        renewed: AllocationTerms,
        others: list[AllocationTerms],
        situation: Situation,
        prices: Floats,
        staying: list[Holding],
    ) -> bool:
        """Whether another hour of an allocation beats returning it, and replacing it with the best purchase."""
        rest = _total(others)
        keep = self._cost_per_work(_with(rest, renewed), changes=False)
        let_go = self._cost_per_work(rest, changes=True)
        room = situation.most_nu - sum(other.nu for other in staying if other is not holding)
        swap, _ = self._best(rest, self._candidates(room, prices))
        return bool(keep <= min(let_go, swap))

    def _buy(
        self, held: list[AllocationTerms], current: float, situation: Situation, prices: Floats
    ) -> tuple[list[Rent], float, float]:
        """Purchases, the best one each time, until none lowers the cost per work or no room remains.

        Also returns the remaining room and the resulting cost per work. An allocation that leaves at the end of its
        hour occupies its room until then.
        """
        total = _total(held)
        room = situation.most_nu - sum(holding.nu for holding in situation.holdings)
        bought: list[Rent] = []
        while True:
            candidates = self._candidates(room, prices)
            cost_per_work, at = self._best(total, candidates)
            if at is None or not cost_per_work < current:
                return bought, room, current
            offer, machines = self.offers[at[0]], int(candidates.machines[at[0]])
            bought.append(Rent(offer, machines, int(prices[at[0]]) + self.deltas[at[1]]))
            total = _with(total, _at(candidates.terms, at))
            current = float(self._cost_per_work(total, changes=True))
            room -= machines * offer.nu

    def _candidates(self, room: float, prices: Floats) -> BidGrid:
        """As many machines as one request asks for, or as fit into the room."""
        whole = np.ceil(self.request_nu / self._nu)
        machines = np.minimum(whole, np.floor(room / self._nu))
        nu = np.maximum(machines, 0) * self._nu
        dollars = machines * prices / NANOS_PER_DOLLAR
        survival = 1 - self._beta
        terms = AllocationTerms(survival * dollars[:, None], survival, self._useful_share * nu[:, None], nu[:, None])
        return BidGrid(machines, terms)

    def _best(self, total: AllocationTerms, candidates: BidGrid) -> tuple[float, tuple[int, int] | None]:
        """The candidate that gives the footprint the lowest cost per work."""
        costs = self._cost_per_work(_with(total, candidates.terms), changes=True)
        costs = np.where((candidates.machines > 0)[:, None], costs, inf)
        if not costs.size or not np.isfinite(costs).any():
            return inf, None
        row, column = divmod(int(np.argmin(costs)), costs.shape[1])
        return float(costs[row, column]), (row, column)

    def _held(self, holding: Holding, situation: Situation, hours: float) -> AllocationTerms:
        """The terms of an allocation for the rest of its paid hour, at its current distance from the bid."""
        rent = holding.rent
        price = situation.price(rent.offer)
        beta, median = (0.0, 1.0) if rent.bid is None else self.odds[rent.offer.market].at(rent.bid - price)
        survival = (1 - beta) ** hours
        useful = hours * (survival + (1 - survival) * median)
        return AllocationTerms(
            survival * rent.machines * price / NANOS_PER_DOLLAR * hours, survival, useful * holding.nu, holding.nu
        )

    def _cost_per_work(self, total: AllocationTerms, *, changes: bool) -> Floats | float:
        """Eq. 4.4; infinite without any expected work."""
        app = self.application
        lost = (1 - total.survival) * app.eviction_hours + (app.resize_hours if changes else 0.0)
        work = np.asarray(total.useful - lost * total.nu)
        return np.where(work > 0, (total.cost + app.reliable_usd_per_hour) / np.where(work > 0, work, 1), inf)

    def _next_look(self, now: int, kept: list[Holding], bought: list[Rent], room: float) -> int:
        """Every two minutes while there is room; else before the next paid hour ends."""
        if room >= self._nu.min(initial=inf):
            return now + DECIDE_EVERY
        ends = [_hour_end(holding, now) - RENEW_BEFORE for holding in kept]
        ends = [end if end > now else end + HOUR for end in ends]
        return min(ends + [now + HOUR - RENEW_BEFORE] * bool(bought), default=now + DECIDE_EVERY)


def _hour_end(holding: Holding, now: int) -> int:
    return holding.start + ((now - holding.start) // HOUR + 1) * HOUR


def _hours_left(holding: Holding, now: int) -> float:
    return (_hour_end(holding, now) - now) / HOUR


def _total(terms: list[AllocationTerms]) -> AllocationTerms:
    return AllocationTerms(
        sum(term.cost for term in terms),
        prod(term.survival for term in terms),
        sum(term.useful for term in terms),
        sum(term.nu for term in terms),
    )


def _with(total: AllocationTerms, more: AllocationTerms) -> AllocationTerms:
    return AllocationTerms(
        total.cost + more.cost, total.survival * more.survival, total.useful + more.useful, total.nu + more.nu
    )


def _at(terms: AllocationTerms, at: tuple[int, int]) -> AllocationTerms:
    return AllocationTerms(
        *(
            float(np.broadcast_to(part, np.shape(terms.cost))[at])
            for part in (terms.cost, terms.survival, terms.useful, terms.nu)
        )
    )


def _together(bought: Iterable[Rent]) -> Iterator[Rent]:
    """Equal purchases as one."""
    machines = Counter[tuple[Offer, int | None]]()
    for one in bought:
        machines[one.offer, one.bid] += one.machines
    return (Rent(offer, count, bid) for (offer, bid), count in machines.items())


def _reason(bought: list[Rent], before: float, after: float) -> str:
    if not bought:
        return (
            f"no purchase lowers the expected cost of ${before:.3g} per unit of work"
            if isfinite(before)
            else ("no machine can be rented at a finite expected cost")
        )
    purchases = " and ".join(map(described, _together(bought)))
    if not isfinite(before):
        return f"rent {purchases} (expected ${after:.3g} per unit of work)"
    return f"buying {purchases} lowers the expected cost per unit of work from ${before:.3g} to ${after:.3g}"
