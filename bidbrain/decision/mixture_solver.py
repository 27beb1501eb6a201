"""How many machines of each kind a job holds, and for how long: the cheapest or the fastest mixture
within its limits.

A mixture is a number of machines of each kind. The rate and the price per hour add up over the
machines, so the prices that rates can have at best form a convex curve, whose corners are found by
exchanging one kind for another, the least dollars per unit of rate first (`frontier`). A schedule
is one mixture, or two neighbors on the curve one after the other. No other mixture, and no other
division of the time, costs less (the convex hull contains them all), except for what the change of
machines in the middle costs; a change is only planned where it pays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import floor, inf

_SAME = 1e-9
_QUOTA_PRICES = (0.1, 0.3, 1.0, 3.0, 10.0)
_MAX_LIMITED = 6


@dataclass(frozen=True, slots=True)
class KindOption:
    """A kind of machine: lasting work per hour (nu), dollars per hour, and the most machines that
    may be held.
    """

    nu: float
    usd_per_hour: float
    most: int


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """The most that several kinds may use together, and what one machine of each kind uses."""

    per_machine: tuple[float, ...]
    most: float


@dataclass(frozen=True, slots=True)
class MixtureTerms:
    """The kinds a job may mix, how many machines it holds in all, and what time and changes cost.

    `usd_per_hour` is paid whatever is held: reliable machines, and the value of the user's time.
    `change_hours` is how long machines that replace others are paid for before they work. Where
    machines are held already, `kept` says how many of each kind must stay. `quotas` limit several
    kinds together.
    """

    kinds: tuple[KindOption, ...]
    least: int
    most: int
    usd_per_hour: float = 0.0
    change_hours: float = 0.0
    kept: tuple[int, ...] = ()
    quotas: tuple[SharedQuota, ...] = ()


@dataclass(frozen=True, slots=True)
class Mixture:
    """Machines by kind, their work per hour, and dollars per hour including what is paid whatever
    is held.
    """

    machines: tuple[int, ...]
    rate: float
    usd_per_hour: float

    @property
    def usd_per_work(self) -> float:
        """Dollars per unit of work; infinite for a mixture that does none."""
        if self.rate > 0:
            return self.usd_per_hour / self.rate
        return inf


@dataclass(frozen=True, slots=True, eq=False)
class MixtureCurve:
    """The mixtures at the corners of the curve of least price by rate, slowest first; empty if none
    is possible.
    """

    terms: MixtureTerms
    corners: tuple[Mixture, ...]
    _steps: dict[int, tuple[Mixture, ...]] = field(default_factory=dict)

    def steps(self, place: int) -> tuple[Mixture, ...]:
        """The mixtures between two corners; each exchanges one more machine than the one before."""
        if place not in self._steps:
            slow = self.corners[place].machines
            fast = self.corners[place + 1].machines
            change = [b - a for a, b in zip(slow, fast, strict=True)]
            total = max(change)
            mixtures = []
            for step in range(total + 1):
                changes = zip(slow, change, strict=True)
                machines = [a + step * moved // total for a, moved in changes]
                mixtures.append(_mixture(self.terms, machines))
            self._steps[place] = tuple(mixtures)

        return self._steps[place]


@dataclass(frozen=True, slots=True)
class MixturePhase:
    """A mixture and the hours for which it is held."""

    mixture: Mixture
    hours: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The phases of a job in their order, its length, and its dollars."""

    phases: tuple[MixturePhase, ...]
    hours: float
    usd: float


def cheapest(terms: MixtureTerms, work: float, hours_left: float = inf) -> Schedule | None:
    """The least dollars for the work within the hours left; None if no mixture is fast enough."""
    schedules = []
    for curve in curves(terms):
        best = _cheapest_of(curve.corners)
        if best is None:
            continue

        if work <= best.rate * hours_left:
            schedules.append(_constant(best, work))
            continue

        for place, fast in enumerate(curve.corners[1:]):
            if work <= fast.rate * hours_left * (1 + _SAME):
                schedules.append(_between(curve, place, work, hours_left))
                break

    return min(schedules, key=lambda schedule: schedule.usd, default=None)


def fastest(terms: MixtureTerms, work: float, budget_usd: float = inf) -> Schedule | None:
    """The earliest end of the work within the budget; None if no mixture is cheap enough."""
    schedules = []
    for curve in curves(terms):
        affordable = [
            place
            for place, corner in enumerate(curve.corners)
            if corner.usd_per_work * work <= budget_usd * (1 + _SAME)
        ]
        if not affordable:
            continue

        place = affordable[-1]
        faster = None
        if place + 1 < len(curve.corners):
            faster = _within_budget(curve, place, work, budget_usd)

        schedules.append(faster or _constant(curve.corners[place], work))

    return min(schedules, key=lambda schedule: schedule.hours, default=None)


def cheapest_rate(terms: MixtureTerms) -> Mixture | None:
    """The mixture with the lowest price of work, the fastest one among equals; None if none is
    possible.
    """
    corners = [corner for curve in curves(terms) for corner in curve.corners]
    return _cheapest_of(corners)


def _cheapest_of(mixtures: Sequence[Mixture]) -> Mixture | None:
    return min(
        mixtures, key=lambda mixture: (round(mixture.usd_per_work, 12), -mixture.rate), default=None
    )


def highest_rate(terms: MixtureTerms) -> Mixture | None:
    """The fastest mixture; None if none is possible."""
    corners = (corner for curve in curves(terms) for corner in curve.corners)
    return max(corners, key=lambda corner: corner.rate, default=None)


# -- the curve -------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def curves(terms: MixtureTerms) -> tuple[MixtureCurve, ...]:
    """The curve; where kinds share quotas, also the curves for other prices of the quotas, and
    without some kinds.

    With such quotas the first exchange is not always part of the best mixture: that exchange may
    take room that a better kind needs. Between two changes of prices or holdings, a job decides
    many times on the same terms, hence the cache.
    """
    frontiers = [frontier(terms)]
    limited = [
        j for j in range(len(terms.kinds)) if any(quota.per_machine[j] for quota in terms.quotas)
    ]

    if limited:
        highest_usd = max(kind.usd_per_hour for kind in terms.kinds)
        most_uses = max(max(quota.per_machine) for quota in terms.quotas)
        usual = highest_usd / most_uses
        frontiers += [frontier(terms, price * usual) for price in _QUOTA_PRICES]

    kept = _kept(terms)
    for count in range(1, len(limited)):
        for left_out in combinations(limited, count) if len(limited) <= _MAX_LIMITED else ():
            kinds = (
                replace(kind, most=kept[j]) if j in left_out else kind
                for j, kind in enumerate(terms.kinds)
            )
            frontiers.append(frontier(replace(terms, kinds=tuple(kinds))))

    return tuple(MixtureCurve(terms, tuple(corners)) for corners in frontiers)


def frontier(terms: MixtureTerms, quota_price: float = 0.0) -> list[Mixture]:
    """The mixtures at the corners of the curve of least price by rate, slowest first; empty if none
    is possible.

    Exchanges machines, the least dollars per unit of rate first; free places are a kind of rate 0.
    `quota_price` is added to each kind's price for what it uses of shared quotas, to choose the
    order of exchanges.
    """
    held = _least_machines(terms)
    if held is None:
        return []

    empty = len(terms.kinds)
    nu = [*(kind.nu for kind in terms.kinds), 0.0]
    uses = [sum(quota.per_machine[j] for quota in terms.quotas) for j in range(empty)]
    pairs = zip(terms.kinds, uses, strict=True)
    prices = (kind.usd_per_hour + quota_price * use for kind, use in pairs)
    price = [*prices, 0.0]

    kept = [*_kept(terms), 0]
    counts = [*held, terms.most - sum(held)]
    corners = [_mixture(terms, counts[:empty])]

    while True:
        moves = [
            ((price[j] - price[i]) / (nu[j] - nu[i]), nu[i] - nu[j], i, j)
            for i in range(empty + 1)
            if counts[i] > kept[i]
            for j in range(empty)
            if nu[j] > nu[i] and _room(terms, counts, i, j)
        ]
        if not moves:
            return corners

        _, _, i, j = min(moves)
        surplus = counts[i] - kept[i]
        room = _room(terms, counts, i, j)
        machines = min(surplus, room)
        counts[i], counts[j] = counts[i] - machines, counts[j] + machines
        faster = _mixture(terms, counts[:empty])
        # Mixtures that are slower and cost no less are not on the curve.
        while corners and faster.usd_per_hour <= corners[-1].usd_per_hour:
            corners.pop()
        corners.append(faster)


def _room(terms: MixtureTerms, counts: Sequence[int], i: int, j: int) -> int:
    """How many machines of kind j may take the place of machines of kind i."""
    room = terms.kinds[j].most - counts[j]
    for quota in terms.quotas:
        uses = (*quota.per_machine, 0.0)
        more = uses[j] - uses[i]
        if more > 0:
            pairs = zip(counts, uses, strict=True)
            used = sum(count * each for count, each in pairs)
            free = quota.most - used
            room = min(room, floor(free / more + _SAME))
    return max(room, 0)


def _least_machines(terms: MixtureTerms) -> list[int] | None:
    """The cheapest way to hold the least number of machines, the faster one among equals."""
    counts = list(_kept(terms))
    missing = max(terms.least - sum(counts), 0)
    for j in sorted(
        range(len(terms.kinds)), key=lambda j: (terms.kinds[j].usd_per_hour, -terms.kinds[j].nu)
    ):
        if terms.kinds[j].nu > 0:
            room = _room(terms, (*counts, missing), len(terms.kinds), j)
            more = min(missing, room)
            counts[j], missing = counts[j] + more, missing - more

    if missing or sum(counts) > terms.most:
        return None
    return counts


def _kept(terms: MixtureTerms) -> tuple[int, ...]:
    return terms.kept or (0,) * len(terms.kinds)


def _mixture(terms: MixtureTerms, machines: Sequence[int]) -> Mixture:
    rate = sum(count * kind.nu for count, kind in zip(machines, terms.kinds, strict=True))
    usd = sum(count * kind.usd_per_hour for count, kind in zip(machines, terms.kinds, strict=True))
    return Mixture(tuple(machines), rate, usd + terms.usd_per_hour)


# -- schedules -------------------------------------------------------------------------------------


def _constant(mixture: Mixture, work: float) -> Schedule:
    hours = inf
    if mixture.rate > 0:
        hours = work / mixture.rate
    return Schedule((MixturePhase(mixture, hours),), hours, hours * mixture.usd_per_hour)


def _between(curve: MixtureCurve, place: int, work: float, hours_left: float) -> Schedule:
    """The cheapest schedule between two corners that ends in time: one mixture, or two that take
    all the time.
    """

    def split(low: Mixture, high: Mixture) -> Schedule | None:
        lost = change_usd(curve.terms, low.machines, high)
        work_left = work - low.rate * hours_left
        faster = high.rate - low.rate
        hours = work_left / faster
        usd_of_low = (hours_left - hours) * low.usd_per_hour
        usd_of_high = hours * high.usd_per_hour
        total = usd_of_low + usd_of_high + lost
        phases = (MixturePhase(low, hours_left - hours), MixturePhase(high, hours))
        if 0 < hours < hours_left:
            return Schedule(phases, hours_left, total)
        return None

    possible = _candidates(curve.steps(place), work / hours_left, work, split)
    return min(possible, key=lambda schedule: round(schedule.usd, 9))


def _within_budget(
    curve: MixtureCurve, place: int, work: float, budget_usd: float
) -> Schedule | None:
    """The earliest end between two corners that the budget pays for."""

    def split(low: Mixture, high: Mixture) -> Schedule | None:
        # Hours of both do the work and cost the budget, less what the change costs.
        left = budget_usd - change_usd(curve.terms, low.machines, high)
        pivot = low.rate * high.usd_per_hour - high.rate * low.usd_per_hour
        if pivot <= 0:
            return None
        before = (work * high.usd_per_hour - high.rate * left) / pivot
        after = (low.rate * left - work * low.usd_per_hour) / pivot
        phases = (MixturePhase(low, before), MixturePhase(high, after))
        if before > 0 and after > 0:
            return Schedule(phases, before + after, budget_usd)
        return None

    steps = curve.steps(place)
    # The rate at which the constant mixture costs the budget; neighbors of it are the candidates.
    paid = [mixture for mixture in steps if mixture.usd_per_work * work <= budget_usd * (1 + _SAME)]
    target = paid[-1].rate if paid else steps[0].rate
    wanted_rate = target * (1 + _SAME)
    every = list(_candidates(steps, wanted_rate, work, split))
    affordable = [schedule for schedule in every if schedule.usd <= budget_usd * (1 + _SAME)]
    affordable += [_constant(paid[-1], work)] if paid else []

    return min(affordable, key=lambda schedule: (schedule.hours, schedule.usd), default=None)


def _candidates(
    steps: Sequence[Mixture],
    rate: float,
    work: float,
    split: Callable[[Mixture, Mixture], Schedule | None],
) -> Iterator[Schedule]:
    """Constant mixtures and divisions of the time on both sides of a rate."""
    last = len(steps) - 1
    above = next((i for i, mixture in enumerate(steps) if mixture.rate >= rate * (1 - _SAME)), last)
    yield _constant(steps[above], work)
    below = steps[max(above - 1, 0)]
    for low, high in ((below, steps[above]), (steps[0], steps[-1])):
        if high.rate > low.rate and (divided := split(low, high)) is not None:
            yield divided


def change_usd(terms: MixtureTerms, held: Sequence[int], after: Mixture) -> float:
    """The cost of starting the machines that a mixture has and the job does not hold."""
    started = (max(b - a, 0) for a, b in zip(held, after.machines, strict=True))
    usd_per_hour = sum(
        count * kind.usd_per_hour for count, kind in zip(started, terms.kinds, strict=True)
    )
    return terms.change_hours * usd_per_hour
