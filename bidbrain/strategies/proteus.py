"""`proteus`: buys and keeps what lowers the footprint's expected cost per work (Harlap 4.3, Eq.
4.1-4.4).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf, isfinite, prod
from typing import TypeVar

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.eviction.estimate import Estimate
from bidbrain.strategies.base import (
    REQUEST_VCPUS,
    Decision,
    Holding,
    Offer,
    Rent,
    Return,
    Situation,
    StatedOdds,
    described,
)
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND

# Bid deltas between the papers' bounds, [$0.0001, $0.4] (Harlap 4.3.2).
LOWEST_DELTA, HIGHEST_DELTA = NANOS_PER_DOLLAR // 10_000, NANOS_PER_DOLLAR * 4 // 10
# Resolution of the distance between bid and price; beyond the furthest only rare spikes remain.
_DISTANCES = 160
_FURTHEST = 10 * HIGHEST_DELTA


@dataclass(frozen=True, slots=True)
class Odds:
    """For ascending distances of a bid above the price: the probability of an eviction within an
    hour, and the median share of that hour that passes before it. Where a plan states them,
    `stated` has those of any distance."""

    distances: tuple[int, ...] = ()
    betas: tuple[float, ...] = ()
    medians: tuple[float, ...] = ()
    stated: Callable[[int], Estimate] | None = None

    @classmethod
    def of(cls, history: PriceSeries) -> "Odds":
        crossings = CrossingHistory(history, HOUR)
        spaced = np.geomspace(LOWEST_DELTA, _FURTHEST, _DISTANCES)
        rounded = spaced.round()
        distances = np.unique(rounded.astype(np.int64))
        outcomes = crossings.at_deltas(distances)
        medians = (
            HOUR if crossing.median_time is None else crossing.median_time for crossing in outcomes
        )

        shares = tuple(crossing.share for crossing in outcomes)
        hours = tuple(median / HOUR for median in medians)
        return cls(tuple(distances.tolist()), shares, hours)

    def at(self, distance: int) -> tuple[float, float]:
        """beta and median at the largest known distance not above this one; beta is 1 for a bid
        below the price.
        """
        if distance < 0:
            return 1.0, 0.0
        if self.stated is not None:
            estimate = self.stated(distance)
            seconds = estimate.median_seconds_to_eviction
            return estimate.probability, 1.0 if seconds is None else seconds * SECOND / HOUR
        at = max(bisect_right(self.distances, distance) - 1, 0)
        return self.betas[at], self.medians[at]


def bid_deltas(count: int) -> tuple[int, ...]:
    """Logarithmically spaced bid deltas between the papers' bounds."""
    spaced = np.geomspace(LOWEST_DELTA, HIGHEST_DELTA, count)
    rounded = spaced.round()
    return tuple(rounded.astype(np.int64).tolist())


DECIDE_EVERY = 2 * MINUTE
RENEW_BEFORE = 120 * SECOND
"""How long before the end of a paid hour its renewal is decided."""

# One term of a footprint, or of as many footprints as there are possible purchases.
_Term = TypeVar("_Term", float, Floats)


@dataclass(frozen=True, slots=True)
class JobCosts:
    """The job's own costs: pauses lambda and sigma and start-up in hours, and dollars per hour for
    the reliable machines, which do no work."""

    eviction_hours: float
    resize_hours: float
    startup_hours: float
    reliable_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class AllocationTerms:
    """One allocation's terms in Eq. 4.1 to 4.3: expected dollars, probability of surviving the
    hour, expected useful hours times work per hour, and work per hour."""

    cost: float
    survival: float
    useful: float
    nu: float


@dataclass(frozen=True, slots=True)
class BidGrid:
    """Possible purchases and their terms, with a row for each offer and a column for each bid; what
    does not fit into the room, or is evicted so soon that pauses take all of its useful time, costs
    infinitely much."""

    machines: Floats
    bids: Floats
    cost: Floats
    survival: Floats
    useful: Floats
    nu: Floats

    def at(self, row: int, column: int) -> AllocationTerms:
        cost = float(self.cost[row, column])
        survival = float(self.survival[row, column])
        useful = float(self.useful[row, column])
        nu = float(self.nu[row, 0])
        return AllocationTerms(cost, survival, useful, nu)


@dataclass(frozen=True, slots=True)
class Proteus:
    """The published strategy. Evictions of allocations count as independent, even within one
    market.

    `request_nu` is the size of one request; the last request takes the remaining room. `deltas` are
    the bids considered, above the price; where one may not be made, the highest that may takes its
    place. `odds` are those of any hour; at the moment `now`, the `stated` ones decide.
    """

    offers: tuple[Offer, ...]
    odds: Mapping[Market, Odds]
    application: JobCosts
    request_nu: float = REQUEST_VCPUS
    deltas: tuple[int, ...] = bid_deltas(10)
    name: str = "proteus"
    now: int | None = None
    stated: StatedOdds | None = None
    _survival: Floats = field(init=False, repr=False)
    _useful_share: Floats = field(init=False, repr=False)
    _nu: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        read = [
            [self.odds[offer.market].at(delta) for delta in self.deltas] for offer in self.offers
        ]
        flat = np.array(read, dtype=float)
        table = flat.reshape(len(self.offers), len(self.deltas), 2)
        beta = table[..., 0]
        median = table[..., 1]
        object.__setattr__(self, "_survival", 1 - beta)

        # A new machine starts up first; the rest of its hour is useful.
        useful = 1 - beta + beta * median - self.application.startup_hours
        object.__setattr__(self, "_useful_share", np.maximum(useful, 0.0))
        speeds = [offer.nu for offer in self.offers]
        nu = np.array(speeds, dtype=float)
        object.__setattr__(self, "_nu", nu)

    def decide(self, situation: Situation) -> Decision:
        """Decides renewals that are due first, then buys while that lowers the cost per work."""
        now = situation.now
        if self.stated is not None and now == self.now:
            # Machines may be held where none are on offer now.
            own = {offer.market: Odds(stated=partial(self.stated, offer)) for offer in self.offers}
            return replace(self, odds={**self.odds, **own}, stated=None).decide(situation)

        listed = [situation.price(offer) for offer in self.offers]
        prices = np.array(listed, dtype=float)
        # Allocations that are renewed together mostly leave the same room.
        bids = self._bids(situation, prices)
        candidates = cache(partial(self._candidates, *bids, prices))
        kept, terms, returns = self._renew(situation, candidates)
        total = _total(terms)
        before = self._cost_per_work(total, changes=False)

        # An allocation that leaves at the end of its hour occupies its room until then.
        held = sum(holding.nu for holding in situation.holdings)
        room = situation.most_nu - held
        bought, room, after = self._buy(total, before, room, candidates)
        machines = Counter[tuple[Offer, int | None]]()
        for rent in bought:
            machines[rent.offer, rent.bid] += rent.machines
        texts = (described(Rent(offer, count, bid)) for (offer, bid), count in machines.items())
        purchases = " and ".join(texts)

        if not bought:
            reason = f"no purchase lowers the expected cost of ${before:.3g} per unit of work"
            if not isfinite(before):
                reason = "no machine can be rented at a finite expected cost"
        elif isfinite(before):
            reason = (
                f"buying {purchases} lowers the expected cost per unit of work from ${before:.3g} "
                f"to ${after:.3g}"
            )
        else:
            reason = f"rent {purchases} (expected ${after:.3g} per unit of work)"

        next_look = self._next_look(now, kept, bought, room)
        return Decision((*returns, *bought), next_look, reason)

    def _renew(
        self, situation: Situation, candidates: Callable[[float], BidGrid]
    ) -> tuple[list[Holding], list[AllocationTerms], list[Return]]:
        """The allocations that stay, with their terms, and the returns of those whose paid hour
        ends and that are not worth another one."""
        now = situation.now
        staying = [holding for holding in situation.holdings if holding.leaves_at is None]
        occupied = sum(holding.nu for holding in staying)
        terms = {}
        for holding in staying:
            hours = (holding.hour_end(now) - now) / HOUR
            terms[holding.allocation] = self._held(holding, situation, hours)
        returns: list[Return] = []

        for holding in staying:
            if holding.hour_end(now) - now <= RENEW_BEFORE + SECOND:
                renewed = self._held(holding, situation, 1.0)
                others = [term for number, term in terms.items() if number != holding.allocation]
                rest = _total(others)
                # Another hour must beat returning the allocation, and replacing it with the best
                # purchase.
                keep = self._cost_per_work(_total([rest, renewed]), changes=False)
                keeps = keep <= self._cost_per_work(rest, changes=True)
                if keeps:
                    occupied_by_others = occupied - holding.nu
                    swaps = candidates(situation.most_nu - occupied_by_others)
                    swap, _ = self._best(rest, swaps)
                    keeps = keep <= swap

                if keeps:
                    terms[holding.allocation] = renewed
                else:
                    del terms[holding.allocation]
                    returns.append(Return(holding.allocation, holding.hour_end(now)))

        kept = [holding for holding in staying if holding.allocation in terms]
        return kept, list(terms.values()), returns

    def _buy(
        self,
        total: AllocationTerms,
        current: float,
        room: float,
        candidates: Callable[[float], BidGrid],
    ) -> tuple[list[Rent], float, float]:
        """Purchases, the best one each time, until none lowers the cost per work or no room
        remains.

        Also returns the remaining room and the resulting cost per work.
        """
        bought: list[Rent] = []
        while True:
            grid = candidates(room)
            cost_per_work, at = self._best(total, grid)
            if at is None or not cost_per_work < current:
                return bought, room, current

            row, column = at
            offer = self.offers[row]
            machines = int(grid.machines[row])
            bid = int(grid.bids[row, column])
            bought.append(Rent(offer, machines, bid))
            total = _total([total, grid.at(row, column)])
            current = self._cost_per_work(total, changes=True)
            room -= machines * offer.nu

    def _bids(self, situation: Situation, prices: Floats) -> tuple[Floats, Floats, Floats]:
        """The bids of each offer (row), none above the highest that may be made, with their chances
        of survival and useful shares."""
        distances = np.array(self.deltas, dtype=float)
        bids = prices[:, None] + distances
        highest = situation.highest_bid
        if highest is None:
            return bids, self._survival, self._useful_share

        highest_bids = [highest(offer) for offer in self.offers]
        caps = np.array(highest_bids, dtype=float)
        pairs = zip(self.offers, (caps - prices).tolist(), strict=True)
        pairs_of_odds = []
        for offer, distance in pairs:
            odds_of_market = self.odds[offer.market]
            pairs_of_odds.append(odds_of_market.at(int(distance)))
        odds = np.array(pairs_of_odds).reshape(-1, 2)
        beta = odds[:, :1]
        median = odds[:, 1:]
        mean_hour = 1 - beta + beta * median
        left_hour = mean_hour - self.application.startup_hours
        useful = np.maximum(left_hour, 0.0)
        over = bids > caps[:, None]

        capped = np.minimum(bids, caps[:, None])
        survival = np.where(over, 1 - beta, self._survival)
        useful_shares = np.where(over, useful, self._useful_share)
        return (capped, survival, useful_shares)

    def _candidates(
        self, bids: Floats, survival: Floats, useful: Floats, prices: Floats, room: float
    ) -> BidGrid:
        """The machines that one request asks for, or that fit into the room."""
        whole = np.ceil(self.request_nu / self._nu)
        machines = np.minimum(whole, np.floor(room / self._nu))
        speeds = np.maximum(machines, 0) * self._nu
        nu = speeds[:, None]
        dollars = (machines * prices / NANOS_PER_DOLLAR)[:, None]
        pauses = (1 - survival) * self.application.eviction_hours + self.application.resize_hours
        possible = (machines[:, None] > 0) & (useful > pauses)
        cost = np.where(possible, survival * dollars, inf)
        return BidGrid(machines, bids, cost, survival, useful * nu, nu)

    def _best(self, total: AllocationTerms, grid: BidGrid) -> tuple[float, tuple[int, int] | None]:
        """The candidate that gives the footprint the lowest cost per work."""
        if not grid.cost.size:
            return inf, None

        nu = total.nu + grid.nu
        survival = total.survival * grid.survival
        useful = total.useful + grid.useful
        work = self._work(survival, useful, nu, changes=True)
        dollars = total.cost + grid.cost + self.application.reliable_usd_per_hour
        never = np.full(work.shape, inf)
        costs = np.divide(dollars, work, out=never, where=work > 0)
        at = int(costs.argmin())
        best = costs.item(at)

        if isfinite(best):
            return (best, divmod(at, costs.shape[1]))
        return (inf, None)

    def _held(self, holding: Holding, situation: Situation, hours: float) -> AllocationTerms:
        """The terms of an allocation for the rest of its paid hour, at its current distance from
        the bid.
        """
        rent = holding.rent
        if rent.bid is None:
            price = rent.offer.on_demand
            beta = 0.0
            median = 1.0
        else:
            price = situation.price(rent.offer)
            odds = self.odds[rent.offer.market]
            beta, median = odds.at(rent.bid - price)

        survival = (1 - beta) ** hours
        useful = hours * (survival + (1 - survival) * median)
        surviving = survival * rent.machines
        usd = surviving * price / NANOS_PER_DOLLAR * hours
        useful_nu = useful * holding.nu
        return AllocationTerms(usd, survival, useful_nu, holding.nu)

    def _cost_per_work(self, total: AllocationTerms, *, changes: bool) -> float:
        """Eq. 4.4; infinite without any expected work."""
        work = self._work(total.survival, total.useful, total.nu, changes=changes)
        if work > 0:
            return (total.cost + self.application.reliable_usd_per_hour) / work
        return inf

    def _work(self, survival: _Term, useful: _Term, nu: _Term, *, changes: bool) -> _Term:
        """The expected work of a footprint in an hour, less what pauses for evictions and changes
        cost.
        """
        app = self.application
        eviction_hours = (1 - survival) * app.eviction_hours
        resize_hours = app.resize_hours if changes else 0.0
        pauses = (eviction_hours + resize_hours) * nu
        return useful - pauses

    def _next_look(self, now: int, kept: list[Holding], bought: list[Rent], room: float) -> int:
        """Every two minutes while there is room; else before the next paid hour ends."""
        if room >= self._nu.min(initial=inf):
            return now + DECIDE_EVERY
        ends = [holding.hour_end(now) - RENEW_BEFORE for holding in kept]
        ends = [end if end > now else end + HOUR for end in ends]
        renewal = now + HOUR - RENEW_BEFORE
        renewals = [renewal] * bool(bought)
        return min(ends + renewals, default=now + DECIDE_EVERY)


def _total(terms: list[AllocationTerms]) -> AllocationTerms:
    cost = sum(term.cost for term in terms)
    survival = prod(term.survival for term in terms)
    useful = sum(term.useful for term in terms)
    nu = sum(term.nu for term in terms)
    return AllocationTerms(cost, survival, useful, nu)
