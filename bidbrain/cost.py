"""Cost per work of a set of allocations, each term visible (Harlap 4.3.1-4.3.2, Eq. 4.1-4.4).

    C   = sum (1 - beta_i) P_i k_i t_i            4.1, or the expected payment under another billing rule
    dt_i = omega_i - P(any eviction) lambda - sigma    4.2, never below 0: a pause does not undo work
    W   = phi sum k_i dt_i nu_i                   4.3
    E   = C / W                                   4.4

omega_i is the time left in the paid hour, or until an eviction if one comes first: left (1 - beta)
+ eviction beta, less the start-up of machines that are new.

The effective price of a machine is its price per hour of lasting work: the price divided by the
share of time that evictions do not waste, plus data transfers (section 6.3.2 of Gavel's
dissertation).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import usd
from bidbrain.errors import BidBrainError
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND, format_usd

Phi = float | Callable[[Floats], Floats]
"""How well the job scales: a constant, or a function of the footprint's size, which is the work
that its machines would do in an hour without losses (the sum of k nu, so vCPUs where nu is
vCPUs)."""

# The largest floating-point probability below 1: keeps the hazard of a certain eviction finite.
_ALMOST_SURE = float(np.nextafter(1.0, 0.0))
_NEGLIGIBLE_RATE = 1e-15


class ImpossibleAllocation(BidBrainError, ValueError):
    """An invalid figure of an allocation or a job: a probability above 1, no machines, a price of
    0.
    """


class BadEffectivePrice(BidBrainError):
    """An input of an effective price is invalid or unknown."""


@dataclass(frozen=True, slots=True)
class FootprintAllocation:
    """k machines of one market, bought together (or planned to be), with the rest of their paid
    hour.

    `beta` is the probability of an eviction within `left`, and `eviction_after` the expected time
    until it, if it comes; both spans are in microseconds. `paid_seconds` are the expected billed
    seconds of a machine (`billing.expected_seconds`); without them hourly refunds hold, Eq. 4.1.
    While a machine starts up, the first `startup` of the time left, it is paid and does no work.
    Reliable machines, which cost and do no work, are allocations of `nu` 0 and `beta` 0.
    """

    market: Market
    machines: int
    price: int
    nu: float
    left: int = HOUR
    beta: float = 0.0
    eviction_after: float | None = None
    paid_seconds: float | None = None
    startup: int = 0
    planned: bool = False

    def __post_init__(self) -> None:
        least_price = 0 if self.market.reservation else 1
        if (
            min(self.machines, self.left) <= 0
            or self.price < least_price
            or min(self.nu, self.startup) < 0
        ):
            raise ImpossibleAllocation(
                f"{self.market}: {self.machines} machines, {self.left} microseconds left, at "
                f"{self.price} nano-dollars,"
                f" nu {self.nu:g}, start-up {self.startup}: the first two must be above 0, the "
                "others not below; only a reservation can cost nothing"
            )

        if not 0 <= self.beta <= 1:
            raise ImpossibleAllocation(f"{self.market}: beta {self.beta:g} is not a probability")
        if self.beta > 0 and self.eviction_after is None:
            raise ImpossibleAllocation(
                f"{self.market}: beta {self.beta:g} needs a time to eviction"
            )

    @property
    def expected_hours(self) -> float:
        """omega: the expected hours of running within the time left, once started up."""
        if self.eviction_after is None:
            runs = float(self.left)
        else:
            whole = self.left * (1 - self.beta)
            until_eviction = min(self.eviction_after, self.left)
            cut_short = until_eviction * self.beta
            runs = whole + cut_short
        return max(runs - self.startup, 0.0) / HOUR

    @property
    def cost_usd(self) -> float:
        """The allocation's part of C."""
        paid = (
            (1 - self.beta) * self.left / SECOND if self.paid_seconds is None else self.paid_seconds
        )
        return usd(self.price * self.machines * paid)

    @property
    def rate(self) -> float:
        """k nu: the work of an hour without losses."""
        return self.machines * self.nu


@dataclass(frozen=True, slots=True)
class Application:
    """The job's losses by scaling and pauses: phi, and the pauses sigma and lambda in microseconds.

    The defaults are assumptions until a run's own log gives better values: perfect scaling, half a
    minute lost by a resize, a minute by an eviction.
    """

    phi: Phi = 1.0
    sigma: int = MINUTE // 2
    lambda_: int = MINUTE

    def __post_init__(self) -> None:
        if self.sigma < 0 or self.lambda_ < 0:
            raise ImpossibleAllocation(
                f"pauses of {self.sigma} and {self.lambda_} microseconds: neither may be below 0"
            )

    def scaling(self, size: Floats) -> Floats:
        """phi at one or many sizes."""
        phi = self.phi(size) if callable(self.phi) else np.float64(self.phi)
        if not np.all(np.asarray(phi) > 0):
            raise ImpossibleAllocation(
                f"phi is {float(np.min(phi)):g} at some size; it must be above 0 at all of them"
            )
        return np.asarray(phi, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CostShare:
    """One allocation's part: its cost, its useful time dt_i, and its work."""

    allocation: FootprintAllocation
    cost_usd: float
    useful_hours: float
    work: float

    def __str__(self) -> str:
        """All its terms on one line."""
        held = self.allocation
        state = "planned" if held.planned else "held"
        machines = f"{held.market}: {held.machines} {state} at ${format_usd(held.price)}/h"
        left = f"{held.left / MINUTE:.1f} min left of the hour, {held.beta:.1%} evicted"
        runs = f"runs {held.expected_hours * 60:.1f} min, {self.useful_hours * 60:.1f} useful"
        work = f"{held.nu:g} per machine-hour: work {self.work:.4g}"
        return f"{machines}, {left}: ${self.cost_usd:.4g}; {runs}, {work}"


@dataclass(frozen=True, slots=True)
class CostPerWork:
    """E of a footprint and its terms. `stall_hours` is P(any eviction) lambda, `resize_hours`
    sigma.
    """

    shares: tuple[CostShare, ...]
    eviction: float
    stall_hours: float
    resize_hours: float
    phi: float

    @property
    def cost_usd(self) -> float:
        """C."""
        return sum(share.cost_usd for share in self.shares)

    @property
    def work(self) -> float:
        """W."""
        return sum(share.work for share in self.shares)

    @property
    def usd_per_work(self) -> float:
        """E; infinite for a footprint that does no work."""
        if self.work > 0:
            return self.cost_usd / self.work
        return math.inf

    def explain(self) -> str:
        """The terms, one per line."""
        cost = (
            f"${self.cost_usd:.4g} for an expected work of {self.work:.4g}, at {self.phi:.1%} "
            "scaling efficiency"
        )
        if self.work > 0:
            cost = f"${self.usd_per_work:.4g} per unit of work: {cost}"
        stall = f"{self.stall_hours * 3600:.1f} s to evictions"
        at_least_one = f"(probability of at least one: {self.eviction:.1%})"
        resize = f"{self.resize_hours * 3600:.1f} s to changes of the fleet"
        lost = f"each machine loses {stall} {at_least_one}, {resize}"
        return "\n".join((cost, lost, *map(str, self.shares)))


def evaluate(footprint: Sequence[FootprintAllocation], application: Application) -> CostPerWork:
    """Cost per work of a footprint. sigma counts if the footprint changes: if an allocation is
    planned.
    """
    eviction = chance_of_eviction(footprint)
    stall = eviction * application.lambda_ / HOUR
    changes = any(allocation.planned for allocation in footprint)
    resize = application.sigma / HOUR if changes else 0.0
    summed_rate = sum(allocation.rate for allocation in footprint)
    all_rates = np.asarray(summed_rate, dtype=np.float64)
    scaled = application.scaling(all_rates)
    phi = float(scaled)

    def share(allocation: FootprintAllocation) -> CostShare:
        useful = max(allocation.expected_hours - stall - resize, 0.0)
        return CostShare(allocation, allocation.cost_usd, useful, phi * allocation.rate * useful)

    shares = tuple(share(allocation) for allocation in footprint)
    return CostPerWork(shares, eviction, stall, resize, phi)


def chance_of_eviction(footprint: Iterable[FootprintAllocation]) -> float:
    """The probability that any allocation is evicted within its time left.

    Markets are independent of each other, as in Eq. 4.2. Allocations of one market are evicted
    together, since one price decides: an eviction at a higher bid implies one at a lower bid. With
    the same time left the probability is that of the lowest bid. Where times differ, each moment
    counts the largest hazard of those whose hour still runs, with hazards constant over their own
    time left (a single beta says nothing finer).
    """
    by_market: dict[Market, list[FootprintAllocation]] = {}
    for allocation in footprint:
        by_market.setdefault(allocation.market, []).append(allocation)
    risks: list[float] = []

    for together in by_market.values():
        hazards = [
            (each.left, float(cumulative_hazard(np.float64(each.beta))) / each.left)
            for each in together
        ]
        moments = {0, *(left for left, _ in hazards)}
        ends = sorted(moments)
        for since, until in pairwise(ends):
            highest_hazard = max(hazard for left, hazard in hazards if left >= until)
            risks.append((until - since) * highest_hazard)

    return -math.expm1(-sum(risks))


def cumulative_hazard(beta: Floats | np.float64) -> Floats:
    """-log(1 - beta), finite for a certain eviction."""
    below_one = np.minimum(beta, _ALMOST_SURE)
    log_staying = np.log1p(-below_one)
    return np.asarray(-log_staying)


@dataclass(frozen=True, slots=True)
class EvictionLoss:
    """The eviction rate of a machine, and the time that evictions waste.

    Lifetimes are exponential with `per_hour` evictions. A life begins with `startup_hours` without
    progress; then every `checkpoint_every_hours` of work are followed by `checkpoint_hours` of
    writing. With a warning long enough for a checkpoint only the writing is lost; without one, the
    work since the last checkpoint as well.
    """

    per_hour: float
    startup_hours: float = 0.0
    checkpoint_every_hours: float = 0.25
    checkpoint_hours: float = 0.0
    warned: bool = True

    def __post_init__(self) -> None:
        spans = (self.per_hour, self.startup_hours, self.checkpoint_hours)
        if not all(math.isfinite(span) and span >= 0 for span in spans):
            raise BadEffectivePrice(
                f"{self.per_hour:g} evictions an hour, {self.startup_hours:g} hours of start and"
                f" {self.checkpoint_hours:g} of a checkpoint: each must be finite and at least 0"
            )

        if not (math.isfinite(self.checkpoint_every_hours) and self.checkpoint_every_hours > 0):
            raise BadEffectivePrice(
                f"checkpoint every {self.checkpoint_every_hours:g} hours: the interval must be "
                "above 0"
            )

    @property
    def useful_share(self) -> float:
        """The share of paid time that is lasting work, over many lives.

        Of a life X, `k` whole cycles c + w last if X reaches startup + k (c + w), so that the mean
        work of an unwarned life is c * sum_k math.exp(-rate (startup + k (c + w))); 1 / rate is the
        mean life.
        """
        rate = self.per_hour
        every = self.checkpoint_every_hours
        writing = self.checkpoint_hours
        if self.warned:
            # Periodic checkpoints are not needed: only the one at the warning is written.
            return math.exp(-rate * (self.startup_hours + writing))

        cycle = every + writing
        if rate * cycle < _NEGLIGIBLE_RATE:
            # The loss is below rounding error; the formula would overflow for rates near the
            # smallest float.
            return every / cycle

        if rate * cycle < 700:
            kept_work = every * rate * math.exp(-rate * self.startup_hours)
            lost_share = math.expm1(rate * cycle)
            return kept_work / lost_share
        return 0.0


def effective_usd_per_hour(
    usd_per_hour: float, useful_share: float, moved_usd: float = 0.0, hours: float = 1.0
) -> float:
    """Dollars per hour of lasting work over `hours` of it: price over the useful share, plus data
    transfers.
    """
    if not 0 < useful_share <= 1:
        raise BadEffectivePrice(
            f"useful share {useful_share:g}: a price per hour of work needs a share above 0"
        )
    if not hours > 0:
        raise BadEffectivePrice(
            f"{hours:g} hours of work: a price per hour of work needs more than 0"
        )

    return usd_per_hour / useful_share + moved_usd / hours
