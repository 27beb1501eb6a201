"""`Mixed`: a strategy for each kind of machine, and how many of each kind the job's limits make worth holding.

The mixture is solved again at each decision, with the prices, the work, the time and the money of that moment, so that
it follows when prices move, machines are evicted, or a phase ends. Within a kind, the job's strategy chooses the
markets, the bids, and what to return.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from bidbrain.decision.mixture_solver import KindOption, MixturePhase, MixtureTerms, Schedule, change_usd
from bidbrain.decision.mixture_terms import Aim, Mixing
from bidbrain.strategies.base import LOOK_AGAIN, Decision, Holding, Rent, Return, Situation, Strategy
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, usd_text

_MOST_OF_STAYING = 0.99
"""Machines are exchanged if that costs, or takes, less than this share of keeping them."""
_COMPARE_EVERY = 5 * MINUTE
"""How often the prices of the kinds are compared."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A strategy that holds the best mixture of kinds, each as `strategy` decides within that kind."""

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
        wanted = dict(zip(types, schedule.phases[0].mixture.machines, strict=True))
        later = dict(zip(types, schedule.phases[-1].mixture.machines, strict=True))
        parts = [self._within(situation, name, count, later[name]) for name, count in wanted.items() if count]
        returns = tuple(_excess_returns(situation, wanted))
        wakes = [part.wake_at for part in parts if part.wake_at is not None]
        actions = _once((*returns, *(action for part in parts for action in part.actions)))
        reasons = "; ".join(dict.fromkeys(part.reason for part in parts))
        wake_at = min((*wakes, situation.now + _COMPARE_EVERY))
        return Decision(actions, wake_at, f"{schedule_text(schedule, types, self._purpose(situation))}: {reasons}")

    def schedule(self, situation: Situation) -> tuple[list[str], Schedule | None]:
        """The machine types in the situation, and the best schedule of mixtures of them from here."""
        types = _types(situation)
        held = _held(situation, types)
        options = {name: self._option(situation, name, count) for name, count in zip(types, held, strict=True)}
        return types, self._schedule(situation, options, held)

    def _option(self, situation: Situation, name: str, held: int) -> KindOption:
        """A kind at the price of its best open market; without one, only what is held remains."""
        most = self.mixing.most_of_type.get(name, self.mixing.most)
        of_kind = [offer for offer in situation.offers if offer.market.instance_type == name]
        if not of_kind:
            of_kind = [
                holding.rent.offer for holding in situation.holdings if holding.rent.offer.market.instance_type == name
            ]
            most = held
        useful = {offer: self.mixing.useful.get(offer.market, 1.0) for offer in of_kind}
        best = min(of_kind, key=lambda offer: situation.price(offer) / max(offer.nu * useful[offer], 1e-12))
        return KindOption(best.nu * useful[best], situation.price(best) / NANOS_PER_DOLLAR, max(most, held))

    def _schedule(
        self, situation: Situation, options: Mapping[str, KindOption], held: Sequence[int]
    ) -> Schedule | None:
        """The best schedule from here; machines are exchanged only where that pays for the change."""
        terms, work = self.mixing.terms(options), situation.work_left / HOUR
        hours_left = self.mixing.hours_left(self._works_from(situation), situation.deadline)

        def best(of: MixtureTerms) -> Schedule | None:
            # The leases of what is held are part of the schedule's cost.
            return self.mixing.schedule(of, held, work, hours_left, situation.usd_left + situation.usd_reserved)

        new = best(terms)
        if new is None or all(have <= want for have, want in zip(held, new.phases[0].mixture.machines, strict=True)):
            return new
        stay = best(replace(terms, kept=tuple(held)))
        if stay is None or stay.hours > hours_left * (1 + 1e-9):
            return new
        first = new.phases[0].mixture
        # All machines stand still while some leave and others join.
        stall_usd = 2 * self.mixing.overheads.resize / HOUR * first.usd_per_hour
        if self.mixing.aim is Aim.LEAST_COST:
            return stay if stay.usd * _MOST_OF_STAYING <= new.usd + change_usd(terms, held, first) + stall_usd else new
        return stay if stay.hours * _MOST_OF_STAYING <= new.hours + terms.change_hours else new

    def _purpose(self, situation: Situation) -> str:
        return self.mixing.aim if situation.deadline is None else f"{self.mixing.aim} in time"

    def _works_from(self, situation: Situation) -> int:
        """When the first machines work: now, or after the start of what is held or bought."""
        ready = (holding.ready for holding in situation.holdings if holding.leaves_at is None)
        return max(situation.now, min(ready, default=situation.now + self.mixing.overheads.startup))

    def _within(self, situation: Situation, name: str, count: int, later: int) -> Decision:
        """The strategy's decision for one kind. Machines that only the first phase needs are rented separately,
        because an allocation is returned as a whole."""
        offers = tuple(offer for offer in situation.offers if offer.market.instance_type == name)
        holdings = tuple(holding for holding in situation.holdings if holding.rent.offer.market.instance_type == name)
        some = offers[0] if offers else holdings[0].rent.offer
        part = replace(
            situation,
            offers=offers,
            holdings=holdings,
            baseline=Rent(some, count, None),
            most_nu=count * some.nu,
        )
        decision = self.strategy.decide(part)
        room = count - sum(holding.rent.machines for holding in holdings if holding.leaves_at is None)
        fitted = _fitted(decision.actions, room) or _alike(part, room)
        return replace(decision, actions=tuple(_divided(fitted, later)) if 0 < later < count else tuple(fitted))


def schedule_text(schedule: Schedule, types: Sequence[str], purpose: str) -> str:
    """A schedule in words: `7 x p2.xlarge and 1 x p3.2xlarge for 4.6 h (least cost, $19.93)`."""
    cost = f", {usd_text(schedule.usd)}" if schedule.hours < inf else f", ${schedule.usd:.3g} an hour"
    return f"{phases_text(schedule, types)} ({purpose}{cost})"


def phases_text(schedule: Schedule, types: Sequence[str]) -> str:
    """The phases of a schedule in words: `8 x p2.xlarge for 1.8 h, then 7 x p2.xlarge and 1 x p3.2xlarge for 3.0 h`."""
    return ", then ".join(_phase_text(phase, types) for phase in schedule.phases)


def _phase_text(phase: MixturePhase, types: Sequence[str]) -> str:
    counts = zip(phase.mixture.machines, types, strict=True)
    return " and ".join(f"{count} x {name}" for count, name in counts if count) + _span(phase.hours)


def _span(hours: float) -> str:
    return f" for {hours:.1f} h" if hours < inf else ""


def _types(situation: Situation) -> list[str]:
    named = (
        *(offer.market for offer in situation.offers),
        *(holding.rent.offer.market for holding in situation.holdings),
    )
    return list(dict.fromkeys(market.instance_type for market in named))


def _held(situation: Situation, types: Sequence[str]) -> tuple[int, ...]:
    counts: Counter[str] = Counter()
    for holding in situation.holdings:
        if holding.leaves_at is None:
            counts[holding.rent.offer.market.instance_type] += holding.rent.machines
    return tuple(counts[name] for name in types)


def _excess_returns(situation: Situation, wanted: Mapping[str, int]) -> Iterator[Return]:
    """Returns of whole allocations beyond the wanted number of their kind, the newest first."""
    over: Counter[str] = Counter()
    staying: list[Holding] = [holding for holding in situation.holdings if holding.leaves_at is None]
    for holding in staying:
        over[holding.rent.offer.market.instance_type] += holding.rent.machines
    for holding in sorted(staying, key=lambda holding: -holding.allocation):
        name, count = holding.rent.offer.market.instance_type, holding.rent.machines
        if over[name] - wanted.get(name, 0) >= count or (not wanted.get(name, 0) and count):
            over[name] -= count
            yield Return(holding.allocation, situation.now)


def _fitted(actions: Iterable[Rent | Return], room: int) -> list[Rent | Return]:
    """The actions, with purchases cut to the free number of machines."""
    fitted: list[Rent | Return] = []
    for action in actions:
        if not isinstance(action, Rent):
            fitted.append(action)
            continue
        count = min(action.machines, max(room, 0))
        room -= count
        if count:
            fitted.append(replace(action, machines=count))
    return fitted


def _alike(situation: Situation, room: int) -> list[Rent | Return]:
    """More machines like those held: some strategies buy only when nothing is held."""
    for holding in situation.holdings:
        if room > 0 and holding.rent.spot and situation.sells(holding.rent):
            return [replace(holding.rent, machines=room)]
    return []


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
