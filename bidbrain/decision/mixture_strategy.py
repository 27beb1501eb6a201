"""`Mixed`: a strategy for each kind of machine, and how many of each kind the job's limits make
worth holding.

The mixture is solved again at each decision, with the prices, the work, the time and the money of
that moment, so that it follows when prices move, machines are evicted, or a phase ends. Within a
kind, the job's strategy chooses the markets, the bids, and what to return.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from bidbrain.decision.limits import CommonQuota
from bidbrain.decision.mixture_solver import (
    KindOption,
    MixturePhase,
    MixtureTerms,
    Schedule,
    SharedQuota,
    change_usd,
    cheapest,
    cheapest_rate,
    fastest,
    highest_rate,
)
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Holding,
    Overheads,
    Rent,
    Return,
    Situation,
    Strategy,
)
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, usd_text

_TRIES = 8


class Aim(StrEnum):
    """The goal of a mixture; a deadline holds in every case."""

    LEAST_COST = "least cost"
    SHORTEST_TIME = "shortest time within the budget"
    HIGHEST_RATE = "most work per hour"


@dataclass(frozen=True, slots=True)
class Mixing:
    """Terms of a job's mixtures that do not change while it runs.

    `most_of_type` limits a type by its quota. `useful` is the share of a market's paid time that
    evictions leave. `usd_per_hour` is what reliable machines and the user's time cost.
    """

    aim: Aim
    least: int
    most: int
    most_of_type: Mapping[str, int]
    useful: Mapping[Market, float]
    overheads: Overheads
    usd_per_hour: float = 0.0
    quotas: tuple[CommonQuota[str], ...] = ()

    def hours_left(self, now: int, deadline: int | None) -> float:
        """Hours of work until the deadline, less the margin; infinite without a deadline."""
        if deadline is None:
            return inf
        return max((deadline - now - self.margin) / HOUR, 0.0)

    @property
    def margin(self) -> int:
        """The time before a deadline that is kept free: as much as the deadline's safety net takes
        for entering machines, for one eviction, and until it looks again."""
        reaction = self.overheads.startup + self.overheads.eviction + 2 * self.overheads.resize
        return 2 * reaction + LOOK_AGAIN

    @property
    def change_hours(self) -> float:
        """How long machines that replace others are paid for before they work."""
        return (self.overheads.startup + self.overheads.resize) / HOUR

    def terms(self, kinds: Mapping[str, KindOption]) -> MixtureTerms:
        """The terms of a mixture of some kinds, by type."""
        shared = tuple(
            SharedQuota(tuple(quota.uses.get(name, 0.0) for name in kinds), quota.amount)
            for quota in self.quotas
        )
        return MixtureTerms(
            tuple(kinds.values()),
            self.least,
            self.most,
            self.usd_per_hour,
            self.change_hours,
            quotas=shared,
        )

    def schedule(
        self,
        terms: MixtureTerms,
        held: Sequence[int],
        work: float,
        hours_left: float,
        usd_left: float,
    ) -> Schedule | None:
        """The best schedule for the job's aim; if time or money is short, the fastest or the
        cheapest one.

        Infinite work stands for a job of unknown length: its schedule has the price of an hour.
        """
        if work == inf:
            rate = highest_rate(terms) if self.aim is Aim.HIGHEST_RATE else cheapest_rate(terms)
            if rate is None:
                return None
            return Schedule((MixturePhase(rate, inf),), inf, rate.usd_per_hour)
        if self.aim is Aim.LEAST_COST:
            return cheapest(terms, work, hours_left) or fastest(terms, work)

        # The fastest schedule whose machines can also be started within the dollars left, and paid
        # for without work: while all wait for the replacement of an evicted one, and at the end,
        # until they are returned.
        interruption = self.overheads.eviction + 2 * self.overheads.resize + LOOK_AGAIN
        spare_hours = interruption / HOUR
        schedule = fastest(terms, work, usd_left)
        starts = 0.0
        for _ in range(_TRIES):
            if schedule is None:
                break
            first = schedule.phases[0].mixture
            cost = change_usd(terms, held, first) + spare_hours * first.usd_per_hour
            if schedule.usd + cost <= usd_left:
                break
            starts = max(cost, starts + schedule.usd + cost - usd_left)
            schedule = fastest(terms, work, usd_left - starts)

        return schedule or cheapest(terms, work)


_MAX_OF_STAYING = 0.99
"""Machines are exchanged if that costs, or takes, less than this share of keeping them."""
_COMPARE_EVERY = 5 * MINUTE
"""How often the prices of the kinds are compared."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A strategy that holds the best mixture of kinds, each as `strategy` decides within that
    kind."""

    strategy: Strategy
    mixing: Mixing

    @property
    def name(self) -> str:
        """The name of the strategy within a kind."""
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """Asks the strategy for each kind of the current phase; returns machines of other kinds."""
        types, schedule = self.schedule(situation)
        if schedule is None or not any(schedule.phases[0].mixture.machines):
            return Decision((), situation.now + LOOK_AGAIN, "no kind of machine is available")

        first = schedule.phases[0]
        last = schedule.phases[-1]
        wanted = dict(zip(types, first.mixture.machines, strict=True))
        later = dict(zip(types, last.mixture.machines, strict=True))
        parts = [
            self._within(situation, name, count, later[name])
            for name, count in wanted.items()
            if count
        ]

        returns = tuple(_excess_returns(situation, wanted))
        wakes = [part.wake_at for part in parts if part.wake_at is not None]
        of_parts = [action for part in parts for action in part.actions]
        actions = _once((*returns, *of_parts))
        reasons_of_parts = (part.reason for part in parts)
        reasons = "; ".join(dict.fromkeys(reasons_of_parts))
        wake_at = min((*wakes, situation.now + _COMPARE_EVERY))
        purpose = self.mixing.aim if situation.deadline is None else f"{self.mixing.aim} in time"

        # `7 x p2.xlarge and 1 x p3.2xlarge for 4.6 h (least cost, $19.93)`
        cost = usd_text(schedule.usd) if schedule.hours < inf else f"${schedule.usd:.3g} an hour"
        return Decision(
            actions, wake_at, f"{phases_text(schedule, types)} ({purpose}, {cost}): {reasons}"
        )

    def schedule(self, situation: Situation) -> tuple[list[str], Schedule | None]:
        """The machine types in the situation, and the best schedule of mixtures of them from
        here."""
        held_offers = [holding.rent.offer for holding in situation.holdings]
        all_types = (offer.market.instance_type for offer in (*situation.offers, *held_offers))
        types = list(dict.fromkeys(all_types))
        counts: Counter[str] = Counter()
        for holding in situation.holdings:
            if holding.leaves_at is None:
                counts[holding.rent.offer.market.instance_type] += holding.rent.machines

        held = tuple(counts[name] for name in types)

        # Each kind has the price of its best open market; without one, only what is held remains.
        options = {}
        for name, count in zip(types, held, strict=True):
            most = self.mixing.most_of_type.get(name, self.mixing.most)
            of_kind = [offer for offer in situation.offers if offer.market.instance_type == name]
            if not of_kind:
                of_kind = [offer for offer in held_offers if offer.market.instance_type == name]
                most = count

            rates = [offer.nu * self.mixing.useful.get(offer.market, 1.0) for offer in of_kind]
            costs = []
            for offer, rate in zip(of_kind, rates, strict=True):
                price = situation.price(offer)
                costs.append(price / max(rate, 1e-12))
            best = costs.index(min(costs))
            usd_per_hour = situation.price(of_kind[best]) / NANOS_PER_DOLLAR
            options[name] = KindOption(rates[best], usd_per_hour, max(most, count))

        return types, self._schedule(situation, options, held)

    def _schedule(
        self, situation: Situation, options: Mapping[str, KindOption], held: Sequence[int]
    ) -> Schedule | None:
        """The best schedule from here; machines are exchanged only where that pays for the
        change."""
        terms = self.mixing.terms(options)
        work = situation.work_left / HOUR
        # When the first machines work: now, or after the start of what is held or bought.
        ready = (holding.ready for holding in situation.holdings if holding.leaves_at is None)
        startup = situation.now + self.mixing.overheads.startup
        works_from = max(situation.now, min(ready, default=startup))
        hours_left = self.mixing.hours_left(works_from, situation.deadline)

        def best(of: MixtureTerms) -> Schedule | None:
            # The leases of what is held are part of the schedule's cost.
            usd_of_all = situation.usd_left + situation.usd_reserved
            return self.mixing.schedule(of, held, work, hours_left, usd_of_all)

        new = best(terms)
        if new is None or all(
            have <= want for have, want in zip(held, new.phases[0].mixture.machines, strict=True)
        ):
            return new

        stay = best(replace(terms, kept=tuple(held)))
        if stay is None or stay.hours > hours_left * (1 + 1e-9):
            return new

        first = new.phases[0].mixture
        # All machines stand still while some leave and others join.
        stall_usd = 2 * self.mixing.overheads.resize / HOUR * first.usd_per_hour
        if self.mixing.aim is Aim.LEAST_COST:
            usd_of_staying = stay.usd * _MAX_OF_STAYING
            usd_of_change = change_usd(terms, held, first)
            if usd_of_staying <= new.usd + usd_of_change + stall_usd:
                return stay
            return new

        if stay.hours * _MAX_OF_STAYING <= new.hours + terms.change_hours:
            return stay
        return new

    def _within(self, situation: Situation, name: str, count: int, later: int) -> Decision:
        """The strategy's decision for one kind. Machines that only the first phase needs are rented
        separately, because an allocation is returned as a whole."""
        offers = tuple(offer for offer in situation.offers if offer.market.instance_type == name)
        holdings = tuple(
            holding
            for holding in situation.holdings
            if holding.rent.offer.market.instance_type == name
        )

        some = offers[0] if offers else holdings[0].rent.offer
        baseline = Rent(some, count, None)
        part = replace(
            situation, offers=offers, holdings=holdings, baseline=baseline, most_nu=count * some.nu
        )

        decision = self.strategy.decide(part)
        staying = sum(holding.rent.machines for holding in holdings if holding.leaves_at is None)
        room = count - staying

        # Purchases are cut to the free number of machines.
        free = max(room, 0)
        fitted: list[Rent | Return] = []
        for action in decision.actions:
            if not isinstance(action, Rent):
                fitted.append(action)
                continue
            machines = min(action.machines, free)
            free -= machines
            if machines:
                fitted.append(replace(action, machines=machines))

        if not fitted and room > 0:
            # Some strategies buy only when nothing is held: more machines like those held.
            held = (holding.rent for holding in holdings)
            alike = next((rent for rent in held if rent.spot and part.sells(rent)), None)
            fitted = [] if alike is None else [replace(alike, machines=room)]

        actions = tuple(_divided(fitted, later)) if 0 < later < count else tuple(fitted)
        return replace(decision, actions=actions)


def phases_text(schedule: Schedule, types: Sequence[str]) -> str:
    """The phases of a schedule in words: `8 x p2.xlarge for 1.8 h, then 7 x p2.xlarge and 1 x
    p3.2xlarge for 3.0 h`.
    """
    phases = []
    for phase in schedule.phases:
        counts = zip(phase.mixture.machines, types, strict=True)
        span = ""
        if phase.hours < inf:
            span = f" for {phase.hours:.1f} h"
        counts_text = " and ".join(f"{count} x {name}" for count, name in counts if count)
        phases.append(counts_text + span)
    return ", then ".join(phases)


def _excess_returns(situation: Situation, wanted: Mapping[str, int]) -> Iterator[Return]:
    """Returns of whole allocations beyond the wanted number of their kind, the newest first."""
    over: Counter[str] = Counter()
    staying: list[Holding] = [
        holding for holding in situation.holdings if holding.leaves_at is None
    ]
    for holding in staying:
        over[holding.rent.offer.market.instance_type] += holding.rent.machines

    for holding in sorted(staying, key=lambda holding: -holding.allocation):
        name = holding.rent.offer.market.instance_type
        count = holding.rent.machines
        wanted_of_type = wanted.get(name, 0)
        is_over = over[name] - wanted_of_type >= count
        if is_over or (not wanted.get(name, 0) and count):
            over[name] -= count
            yield Return(holding.allocation, situation.now)


def _divided(actions: Iterable[Rent | Return], lasting: int) -> Iterator[Rent | Return]:
    """Splits purchases into machines that also the last phase needs, and the others."""
    for action in actions:
        if not isinstance(action, Rent):
            yield action
            continue
        both = min(action.machines, lasting)
        lasting -= both
        for count in (both, action.machines - both):
            if count:
                yield replace(action, machines=count)


def _once(actions: Iterable[Rent | Return]) -> tuple[Rent | Return, ...]:
    """The actions, with a single return of each allocation."""
    chosen: list[Rent | Return] = []
    returned: set[int] = set()
    for action in actions:
        if isinstance(action, Return):
            if action.allocation in returned:
                continue
            returned.add(action.allocation)
        chosen.append(action)

    return tuple(chosen)
