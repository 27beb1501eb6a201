"""`proteus`: buy what lowers the footprint's expected cost per work, keep what still does (Harlap 4.3, Eq. 4.1-4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, prod

import numpy as np

from bidbrain.eviction.crossing import Floats
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.odds import Odds, bid_deltas
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND

DECIDE_EVERY = 2 * MINUTE
RENEW_BEFORE = 120 * SECOND
REQUEST_NU = 128.0


@dataclass(frozen=True, slots=True)
class Application:
    """What the job itself costs: standstills lambda and sigma, start-up of machines, all in hours, and the machines
    that are always kept and do no work, in dollars per hour."""

    eviction_hours: float
    resize_hours: float
    startup_hours: float
    reliable_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Terms:
    """One allocation's part in Eq. 4.1 to 4.3, or those of many candidates in arrays: expected dollars, chance to
    survive the hour, expected useful hours times work per hour, and work per hour."""

    cost: float | Floats
    survival: float | Floats
    useful: float | Floats
    nu: float | Floats


@dataclass(frozen=True, slots=True)
class Candidates:
    """What could be bought now: `terms` has a row for each offer and a column for each bid delta."""

    machines: Floats
    terms: Terms


@dataclass(frozen=True, slots=True)
class Proteus:
    """The published strategy. Allocations count as independent, also those in one market that fall together.

    `request_nu` is how much is asked for at once; the last request takes what room is left. `deltas` are the bids
    considered above the price.
    """

    offers: tuple[Offer, ...]
    odds: Mapping[Market, Odds]
    application: Application
    request_nu: float = REQUEST_NU
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
        # A new machine starts up first; what is left of its hour after that is useful.
        useful = 1 - beta + beta * median - self.application.startup_hours
        object.__setattr__(self, "_useful_share", np.maximum(useful, 0.0))
        object.__setattr__(self, "_nu", np.array([offer.nu for offer in self.offers], dtype=float))

    def decide(self, situation: Situation) -> Decision:
        """Renewals that are due first, then purchases while they lower the cost per work."""
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
        held = f"{before:.6f} as held" if isfinite(before) else "nothing held"
        reason = f"expected dollars per unit of work: {held}, {after:.6f} with {len(bought)} purchases"
        return Decision((*actions, *bought), self._next_look(now, kept, bought, room), reason)

    def _keeps(
        self,
        holding: Holding,
        renewed: Terms,
        others: list[Terms],
        situation: Situation,
        prices: Floats,
        staying: list[Holding],
    ) -> bool:
        """Whether another hour of an allocation beats letting it go, and swapping it for the best there is."""
        rest = _total(others)
        keep = self._cost_per_work(_with(rest, renewed), changes=False)
        let_go = self._cost_per_work(rest, changes=True)
        room = situation.most_nu - sum(other.nu for other in staying if other is not holding)
        swap, _ = self._best(rest, self._candidates(room, prices))
        return bool(keep <= min(let_go, swap))

    def _buy(
        self, held: list[Terms], current: float, situation: Situation, prices: Floats
    ) -> tuple[list[Rent], float, float]:
        """Purchases, each the best at its turn, until none lowers the cost per work or no room is left.

        Also the room that remains and the cost per work that is reached.

        What leaves at the end of its hour takes room until then; its place is filled when it has gone.
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

    def _candidates(self, room: float, prices: Floats) -> Candidates:
        """As many machines as a request asks for, or as there is room for."""
        whole = np.ceil(self.request_nu / self._nu)
        machines = np.minimum(whole, np.floor(room / self._nu))
        nu = np.maximum(machines, 0) * self._nu
        dollars = machines * prices / NANOS_PER_DOLLAR
        survival = 1 - self._beta
        terms = Terms(survival * dollars[:, None], survival, self._useful_share * nu[:, None], nu[:, None])
        return Candidates(machines, terms)

    def _best(self, total: Terms, candidates: Candidates) -> tuple[float, tuple[int, int] | None]:
        """The candidate with which the footprint's cost per work is least."""
        costs = self._cost_per_work(_with(total, candidates.terms), changes=True)
        costs = np.where((candidates.machines > 0)[:, None], costs, inf)
        if not costs.size or not np.isfinite(costs).any():
            return inf, None
        row, column = divmod(int(np.argmin(costs)), costs.shape[1])
        return float(costs[row, column]), (row, column)

    def _held(self, holding: Holding, situation: Situation, hours: float) -> Terms:
        """The terms of an allocation for the hours left of its paid hour, at its present distance from the bid."""
        rent = holding.rent
        price = situation.price(rent.offer)
        beta, median = (0.0, 1.0) if rent.bid is None else self.odds[rent.offer.market].at(rent.bid - price)
        survival = (1 - beta) ** hours
        useful = hours * (survival + (1 - survival) * median)
        return Terms(
            survival * rent.machines * price / NANOS_PER_DOLLAR * hours, survival, useful * holding.nu, holding.nu
        )

    def _cost_per_work(self, total: Terms, *, changes: bool) -> Floats | float:
        """Eq. 4.4; without any expected work it is infinite."""
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


def _total(terms: list[Terms]) -> Terms:
    return Terms(
        sum(term.cost for term in terms),
        prod(term.survival for term in terms),
        sum(term.useful for term in terms),
        sum(term.nu for term in terms),
    )


def _with(total: Terms, more: Terms) -> Terms:
    return Terms(total.cost + more.cost, total.survival * more.survival, total.useful + more.useful, total.nu + more.nu)


def _at(terms: Terms, at: tuple[int, int]) -> Terms:
    return Terms(
        *(
            float(np.broadcast_to(part, np.shape(terms.cost))[at])
            for part in (terms.cost, terms.survival, terms.useful, terms.nu)
        )
    )
