"""`Mixing`: the terms of a job's mixtures, and the best schedule under them within its time and money. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

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
from bidbrain.strategies.base import LOOK_AGAIN
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.units import HOUR

_TRIES = 8


class Aim(StrEnum):
    """The goal of a mixture; a deadline holds in every case."""

    LEAST_COST = "least cost"
    SHORTEST_TIME = "shortest time within the budget"
    HIGHEST_RATE = "most work per hour"


@dataclass(frozen=True, slots=True)
class TypeQuota:
    """The most that several machine types may use together, and what one machine of each uses."""

    per_machine: Mapping[str, float]
    most: float


@dataclass(frozen=True, slots=True)
class Mixing:
    """Terms of a job's mixtures that do not change while it runs.

    `most_of_type` limits a type by its quota. `useful` is the share of a market's paid time that evictions leave.
    `usd_per_hour` is what reliable machines and the user's time cost.
    """

    aim: Aim
    least: int
    most: int
    most_of_type: Mapping[str, int]
    useful: Mapping[Market, float]
    overheads: Overheads
    usd_per_hour: float = 0.0
    quotas: tuple[TypeQuota, ...] = ()

    def hours_left(self, now: int, deadline: int | None) -> float:
        """Hours of work until the deadline, less the margin; infinite without a deadline."""
        if deadline is None:
            return inf
        return max((deadline - now - self.margin) / HOUR, 0.0)

    @property
    def margin(self) -> int:
        """The time before a deadline that is kept free: as much as the deadline's safety net takes for entering
        machines, for one eviction, and until it looks again."""
        return 2 * (self.overheads.startup + self.overheads.eviction + 2 * self.overheads.resize) + LOOK_AGAIN

    @property
    def spare_hours(self) -> float:
        """How long machines are paid for without working: while all wait for the replacement of an evicted one, and at
        the end, until they are returned."""
        return (self.overheads.eviction + 2 * self.overheads.resize + LOOK_AGAIN) / HOUR

    @property
    def change_hours(self) -> float:
        """How long machines that replace others are paid for before they work."""
        return (self.overheads.startup + self.overheads.resize) / HOUR

    def terms(self, kinds: Mapping[str, KindOption]) -> MixtureTerms:
        """The terms of a mixture of some kinds, by type."""
        shared = tuple(
            SharedQuota(tuple(quota.per_machine.get(name, 0.0) for name in kinds), quota.most) for quota in self.quotas
        )
        return MixtureTerms(
            tuple(kinds.values()), self.least, self.most, self.usd_per_hour, self.change_hours, quotas=shared
        )

    def schedule(
        self, terms: MixtureTerms, held: Sequence[int], work: float, hours_left: float, usd_left: float
    ) -> Schedule | None:
        """The best schedule for the job's aim; if time or money is short, the fastest or the cheapest one.

        Infinite work stands for a job of unknown length: its schedule has the price of an hour.
        """
        if work == inf:
            rate = highest_rate(terms) if self.aim is Aim.HIGHEST_RATE else cheapest_rate(terms)
            return None if rate is None else Schedule((MixturePhase(rate, inf),), inf, rate.usd_per_hour)
        if self.aim is Aim.LEAST_COST:
            return cheapest(terms, work, hours_left) or fastest(terms, work)
        return _within(terms, held, work, usd_left, self.spare_hours) or cheapest(terms, work)


def _within(
    terms: MixtureTerms, held: Sequence[int], work: float, usd_left: float, spare_hours: float
) -> Schedule | None:
    """The fastest schedule whose machines can also be started within the dollars left, and paid for without work for
    some more hours."""
    schedule, starts = fastest(terms, work, usd_left), 0.0
    for _ in range(_TRIES):
        if schedule is None:
            break
        first = schedule.phases[0].mixture
        cost = change_usd(terms, held, first) + spare_hours * first.usd_per_hour
        if schedule.usd + cost <= usd_left:
            break
        starts = max(cost, starts + schedule.usd + cost - usd_left)
        schedule = fastest(terms, work, usd_left - starts)
    return schedule
