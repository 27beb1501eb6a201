"""Reserved machines: the job's own until a moment, at a price of their own, never evicted before.
Pure.

They are rented first while a unit of work costs no more on them than elsewhere, and are left in
time for others to have started when they end. A gang is on reserved machines as a whole, or not at
all; other jobs fill up elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite

from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Holding, Offer, Overheads, Rent, Return, Situation, terms_of

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ReservedOffer:
    """Some reserved machines that are returned at `leave`; the price is the offer's on-demand
    price. `whole`: the job has no checkpoint, so that it must be done by then."""

    offer: Offer
    machines: int
    leave: int
    whole: bool = False

    @property
    def per_work(self) -> float:
        """Nano-dollars per unit of work."""
        return self.offer.on_demand / self.offer.nu


@dataclass(frozen=True, slots=True)
class ReservedTerms:
    """The terms of decisions about reserved machines.

    `elsewhere` are the nano-dollars that a unit of work costs on other machines, and `full` the
    work per hour of the on-demand machines that a deadline can count on, at the `speed` that
    checkpoints leave.
    """

    limits: MachineLimits
    overheads: Overheads
    elsewhere: float
    full: float
    speed: float
    committed_usd: Callable[[Rent], float]

    @property
    def lead(self) -> int:
        """How long before reserved machines leave others are rented in their place."""
        return 2 * self.overheads.startup


@dataclass(frozen=True, slots=True)
class ReservedPart:
    """The part of a decision that is about reserved machines: actions, the machines and the work
    per hour that it keeps or rents there, the work that they will do, and what they commit.
    `is_all`: the job needs no others now."""

    actions: tuple[Rent | Return, ...]
    machines: int
    nu: float
    work: float
    usd: float
    wake_at: int | None
    reason: str
    is_all: bool


def reserved_part(
    reserved: Sequence[ReservedOffer], situation: Situation, terms: ReservedTerms
) -> ReservedPart:
    """Decides which of the reserved machines to rent, keep and return."""
    leaves = {each.offer.market: each.leave for each in reserved}
    held = [holding for holding in situation.holdings if is_reserved(holding)]
    # Machines of a reservation that the job does not name any more are not its own.
    ends = {
        holding.allocation: leaves.get(holding.rent.offer.market, situation.now) for holding in held
    }
    soon = situation.now + terms.lead

    # What leaves soon counts as gone.
    going = [
        holding
        for holding in held
        if holding.leaves_at is not None or ends[holding.allocation] <= soon
    ]

    staying = [holding for holding in held if holding not in going]
    returns = [
        Return(holding.allocation, ends[holding.allocation])
        for holding in going
        if holding.leaves_at is None
    ]

    cheapest_first = sorted(reserved, key=lambda each: (each.per_work, each.leave))
    free = {each: _free(each, held, situation) for each in cheapest_first}
    choose = _for_gang if terms.limits.together else _for_many
    rents, more = choose(free, staying, situation, terms)
    dropped = {action.allocation for action in more}
    kept = [holding for holding in staying if holding.allocation not in dropped]

    every = [(holding.rent, holding.ready) for holding in kept]
    started = situation.now + terms.overheads.startup
    every += [(rent, started) for rent in rents]
    nu = sum(rent.machines * rent.offer.nu for rent, _ in every)
    looks = []
    for rent, _ in every:
        leave = leaves[rent.offer.market]
        looks.append(leave - terms.lead)
    moments = [at for at in looks if at > situation.now]
    wanted = 0.0 if terms.limits.together else situation.most_nu

    machines = sum(rent.machines for rent, _ in every)
    work = sum(
        _work(rent, ready, leaves[rent.offer.market], situation, terms) for rent, ready in every
    )
    usd = sum(rent.machines * terms.committed_usd(rent) for rent in rents)
    reason = _reason(rents, kept, going)
    is_all = bool(every) and nu >= wanted - _ROUNDING
    return ReservedPart(
        actions=(*returns, *more, *rents),
        machines=machines,
        nu=nu,
        work=work,
        usd=usd,
        wake_at=min(moments, default=None),
        reason=reason,
        is_all=is_all,
    )


def is_reserved(holding: Holding) -> bool:
    """Whether machines are of a reservation."""
    return bool(holding.rent.offer.market.reservation)


def without_reserved(situation: Situation, part: ReservedPart) -> Situation:
    """The situation of the rest of a job: its other machines, and the work and the dollars that are
    left for them.
    """
    returned = {action.allocation for action in part.actions if isinstance(action, Return)}
    unreserved = [holding for holding in situation.holdings if not is_reserved(holding)]
    others = tuple(holding for holding in unreserved if holding.allocation not in returned)
    most_nu = situation.most_nu - part.nu
    work = situation.work_left - part.work
    usd_left = situation.usd_left - part.usd
    return replace(
        situation, holdings=others, most_nu=most_nu, work_left=max(work, 1.0), usd_left=usd_left
    )


def _free(each: ReservedOffer, held: Sequence[Holding], situation: Situation) -> int:
    """The machines of a reservation that nothing of the job uses, or none if it has lately refused
    an order.
    """
    market = each.offer.market
    if (market, False) in situation.refused:
        return 0
    used = sum(holding.rent.machines for holding in held if holding.rent.offer.market == market)
    unused = each.machines - used
    leaving = situation.leaving.get((market, False), 0)
    return max(unused - leaving, 0)


def _for_gang(
    free: dict[ReservedOffer, int],
    staying: Sequence[Holding],
    situation: Situation,
    terms: ReservedTerms,
) -> tuple[list[Rent], list[Return]]:
    """All nodes on the machines of one reservation, where the gang stays until it ends."""
    limits = terms.limits
    others = [holding for holding in situation.holdings if not is_reserved(holding)]

    if staying:
        market = staying[0].rent.offer.market
        has = sum(holding.rent.machines for holding in staying)
        own = next(each for each in free if each.offer.market == market)
        more = _bought(own, limits.most - has, free, situation, terms)
        if has + more.machines < limits.least:
            return [], [Return(holding.allocation) for holding in staying]
        done = [
            Return(holding.allocation)
            for holding in others
            if holding.leaves_at is None and has >= limits.least
        ]
        return [more] if more.machines else [], done

    if others and not situation.record.resumes:
        return [], []

    rents = [
        _bought(each, limits.most, free, situation, terms)
        for each in free
        if _is_worth(each, situation, terms) and _ends_well(each, situation, terms)
    ]

    chosen = next((rent for rent in rents if rent.machines >= max(limits.least, 1)), None)
    if chosen is None:
        return [], []

    # What runs now works until the reserved machines have started.
    at = situation.now + terms.overheads.startup
    returns = [Return(holding.allocation, at, replaced=True) for holding in others]
    return [chosen], returns


def _for_many(
    free: dict[ReservedOffer, int],
    staying: Sequence[Holding],
    situation: Situation,
    terms: ReservedTerms,
) -> tuple[list[Rent], list[Return]]:
    """As many reserved machines as the job can use, in the place of more expensive ones."""
    nu = sum(holding.nu for holding in staying)
    machines = sum(holding.rent.machines for holding in staying)
    rents: list[Rent] = []
    for each in free:
        missing = situation.most_nu - nu
        needed = missing / each.offer.nu - _ROUNDING
        most = terms.limits.most - machines
        wanted = min(ceil(needed), most)
        if wanted <= 0 or not _is_worth(each, situation, terms):
            continue
        # Slower machines could take the room of those that a deadline needs.
        if situation.deadline is not None and each.offer.nu < situation.baseline.offer.nu:
            continue

        rent = _bought(each, wanted, free, situation, terms)
        if rent.machines:
            rents.append(rent)
            nu += rent.machines * each.offer.nu
            machines += rent.machines

    return rents, _displaced(nu, machines, situation, terms) if rents else []


def _displaced(
    nu: float, machines: int, situation: Situation, terms: ReservedTerms
) -> list[Return]:
    """The other machines, the most expensive ones, for which reserved ones leave no room."""

    def price(holding: Holding) -> float:
        offer = holding.rent.offer
        is_listed = holding.rent.spot and offer in situation.offers
        return (situation.price(offer) if is_listed else offer.on_demand) / offer.nu

    bought = (holding for holding in situation.holdings if not is_reserved(holding))
    others = sorted(bought, key=price)
    returns = list[Return]()

    for holding in others:
        nu = nu + holding.nu
        machines = machines + holding.rent.machines
        most_nu = situation.most_nu * (1 + _ROUNDING)
        if nu > most_nu or machines > terms.limits.most:
            returns.append(Return(holding.allocation, situation.now, replaced=True))
            nu = nu - holding.nu
            machines = machines - holding.rent.machines

    return returns


def _bought(
    each: ReservedOffer,
    wanted: int,
    free: dict[ReservedOffer, int],
    situation: Situation,
    terms: ReservedTerms,
) -> Rent:
    """The purchase, cut to what is free and to the budget."""
    rent = Rent(each.offer, 1, None)
    usd = terms.committed_usd(rent)
    paid = floor(situation.usd_left / usd) if usd > 0 and situation.usd_left < inf else wanted
    most = min(wanted, free[each], paid)
    return replace(rent, machines=max(most, 0))


def _is_worth(each: ReservedOffer, situation: Situation, terms: ReservedTerms) -> bool:
    """Whether a reservation lasts long enough, and its work costs no more than elsewhere: it is
    never evicted.
    """
    ready_at = situation.now + terms.lead
    return each.leave > ready_at and each.per_work <= terms.elsewhere * (1 + _ROUNDING)


def _ends_well(each: ReservedOffer, situation: Situation, terms: ReservedTerms) -> bool:
    """Whether a gang on reserved machines loses no work when they end, and is done in time, if need
    be with the rest on demand."""
    if not isfinite(situation.work_left):
        return True

    over = terms.overheads
    startup = terms.overheads.startup
    begin = situation.now + startup
    machines = min(each.machines, terms.limits.most)
    rate = machines * each.offer.nu * terms.speed
    rest = situation.work_left - rate * (each.leave - begin)
    if rest > 0 and each.whole:
        return False
    if situation.deadline is None or not terms.full:
        return True
    if rest <= 0:
        return begin + situation.work_left / rate <= situation.deadline

    moved = startup + over.eviction + 2 * over.resize
    full_rate = terms.full * terms.speed
    finishing = rest / full_rate
    return each.leave + moved + finishing <= situation.deadline


def _work(rent: Rent, ready: int, leave: int, situation: Situation, terms: ReservedTerms) -> float:
    """The work that reserved machines do until they leave, or the job ends."""
    if not isfinite(situation.work_left):
        return 0.0
    full_rate = situation.most_nu * terms.speed
    working = situation.work_left / full_rate
    until = min(leave, situation.now + working)
    rate = rent.machines * rent.offer.nu * terms.speed
    begin = max(ready, situation.now)
    span = max(until - begin, 0.0)
    return rate * span


def _reason(rents: Sequence[Rent], kept: Sequence[Holding], going: Sequence[Holding]) -> str:
    parts = [
        f"rent {rent.machines} x {rent.offer.market.instance_type}, {terms_of(rent)}"
        for rent in rents
    ]
    parts += [f"keep {holding.rent.machines} x {terms_of(holding.rent)}" for holding in kept]
    parts += [f"{holding.rent.offer.market.reservation} ends soon" for holding in going]
    return "; ".join(parts)
