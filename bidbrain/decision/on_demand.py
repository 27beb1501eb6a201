"""When a job turns to on-demand machines, to which, and when it returns to spot. Pure.

Times are in microseconds. Work is measured as time on the job's on-demand machines (the baseline),
all of them running.

Why no job misses a deadline that on-demand machines could meet: entering machines loses at most
`enter`, and an eviction of everything on spot, replaced on demand, at most `evict`. A job enters or
moves machines only with slack for both. Once less is left, it does nothing but fill what is missing
on demand. While the whole job runs, no slack is lost; every eviction is followed by a decision.
Several evictions could use up more than `evict`: as soon as less than that is left, or would be
left once what is missing has started, spot machines are replaced while they still run.

Without a deadline, a command moves where spot keeps failing: work that is evicted before a
checkpoint is repeated. The job uses the machines on which an hour of lasting work costs less, and
tries spot again after a wait that doubles each time. Other jobs order machines again when fewer
came than a strategy ordered, or some are gone.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor

from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.strategies.base import (
    RECORD_WINDOW,
    Decision,
    Holding,
    Offer,
    Overheads,
    Rent,
    Situation,
    SpotRecord,
    Strategy,
    described,
)
from bidbrain.strategies.standard import AlwaysOnDemand, Standard, TierMl
from pricing_data.market import Market
from pricing_data.units import HOUR

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """`slack` is the time that can still be lost. `missing` and `on_spot` are the shares of the
    job's full rate that nothing provides, and that spot machines provide. `enter` and `evict`: see
    the module; `leave` is the slack below which spot machines are replaced, and `move` what
    replacing them loses."""

    slack: float
    missing: float
    on_spot: float
    enter: float
    evict: float
    leave: float
    move: float

    def pressed(self, look: int) -> bool:
        """Whether another `look` without on-demand machines could cost the deadline."""
        looking = (1.0 - self.on_spot) * look
        leaving = self.enter + self.evict
        return self.slack - looking < leaving


def time_left(
    situation: Situation,
    deadline: int,
    full: float,
    overheads: Overheads,
    running: Sequence[Holding],
    look: int,
    *,
    speed: float = 1.0,
) -> TimeLeft:
    """The time left to a deadline; `running` are the holdings that do the work, and stay.

    `full` is the work per hour of the baseline, and `speed` is the part of it that checkpoints
    leave. `look` is the time to the next decision, in which more work may come to be at risk.
    """
    rate = full
    now = situation.now
    held = 0.0
    on_spot = 0.0
    pending = 0.0
    starting = set[int]()
    for holding in running:
        share = holding.nu / rate
        held += share
        if holding.rent.spot:
            on_spot += share
        if holding.ready > now:
            starting.add(holding.ready)
            pending += min(share, 1.0) * (holding.ready - now)

    if any(holding.ready <= now for holding in running):
        pending += overheads.resize * len(starting)

    on_spot = min(on_spot, 1.0)
    missing = max(1.0 - held, 0.0)
    unsaved = situation.unsaved / (rate * speed)
    change = overheads.startup + overheads.resize
    starts = on_spot * overheads.startup
    filling = missing * overheads.startup
    entering = 0.0
    if missing > _ROUNDING:
        entering = filling + overheads.resize

    working = situation.work_left / (rate * speed)
    slack = deadline - now - working - pending
    evicted = change + overheads.eviction + overheads.resize
    changes_of_fleet = 2 * overheads.resize
    leaving = starts + entering + overheads.eviction + changes_of_fleet
    lost = unsaved + look if unsaved else 0.0
    resizes = 2 * overheads.resize
    redone = 0.0 if situation.record.resumes else unsaved
    return TimeLeft(
        slack=slack,
        missing=missing,
        on_spot=on_spot,
        enter=change,
        evict=evicted + unsaved,
        leave=leaving + lost,
        move=starts + filling + resizes + redone,
    )


FAILING_EVICTIONS = 3
"""Spot counts as failing from this many evictions within the window; fewer count as chance."""

FIRST_FALLBACK, LONGEST_FALLBACK = HOUR, 8 * HOUR


def reason_to_leave_spot(record: SpotRecord, price_share: float, now: int) -> str:
    """Why spot is not worth its price now; empty if it is. `price_share` is the spot price over the
    on-demand price.
    """
    since = max([now - RECORD_WINDOW, *record.fallbacks])
    times = sum(at > since for at in record.taken)
    # The share of paid spot time whose work lasted.
    lasting_share = record.lasting / record.paid if record.paid else 0.0
    if times < FAILING_EVICTIONS or lasting_share > price_share:
        return ""
    return (
        f"spot keeps failing: {times} evictions in {RECORD_WINDOW / HOUR:g} hours,"
        f" {lasting_share:.0%} of the paid time was useful, at {price_share:.0%} of the "
        "on-demand price"
    )


def left_failing_spot(record: SpotRecord) -> bool:
    """Whether the last move to on-demand machines followed several evictions, and had no other
    reason.
    """
    if not record.fallbacks:
        return False
    moved = record.fallbacks[-1]
    failures = (moved - RECORD_WINDOW < at <= moved for at in record.taken)
    return sum(failures) >= FAILING_EVICTIONS


def fallback_end(record: SpotRecord) -> int | None:
    """Until when the job stays on demand, twice as long each time; None for a job that has not
    moved there.
    """
    if not record.fallbacks or not record.taken:
        return None
    times = len(record.fallbacks)
    fallback = FIRST_FALLBACK << min(times - 1, 8)
    return record.fallbacks[-1] + min(fallback, LONGEST_FALLBACK)


def granted_on_demand(
    wanted: Rent,
    offers: Iterable[Offer],
    most_nu: float,
    limits: MachineLimits,
    refused: Container[tuple[Market, bool]],
) -> Rent:
    """The wanted on-demand machines, or, while their market refuses them, the cheapest others that
    do as much.
    """
    if (wanted.offer.market, False) not in refused:
        return wanted

    least = wanted.machines * wanted.offer.nu * (1 - _ROUNDING)
    others = (
        Rent(offer, baseline_machines(most_nu, offer.nu, limits), None)
        for offer in offers
        if (offer.market, False) not in refused
    )

    enough = (rent for rent in others if limits.rentable(rent).machines * rent.offer.nu >= least)
    return min(enough, key=lambda rent: rent.machines * rent.offer.on_demand, default=wanted)


_ORDERS_ONCE = (Standard, TierMl, AlwaysOnDemand)
"""Strategies that order nothing while they hold anything; the others reorder missing machines
themselves."""


def refill(strategy: Strategy, situation: Situation) -> Decision | None:
    """Orders what is missing, from the job's own market if that sells; None if nothing is missing,
    or for sale.
    """
    if not isinstance(strategy, _ORDERS_ONCE) or not situation.holdings:
        return None

    held = [holding.rent for holding in situation.holdings]
    spot = bool(situation.on_spot)
    afresh = strategy.decide(replace(situation, holdings=()))
    wanted = [rent for rent in afresh.rents if rent.spot is spot]
    missing = sum(rent.machines * rent.offer.nu for rent in wanted)
    missing -= sum(rent.machines * rent.offer.nu for rent in held)
    here = [rent for rent in held if rent.spot is spot and situation.sells(rent)]

    for like in (*here, *wanted):
        machines = floor(missing / like.offer.nu + _ROUNDING)
        if machines > 0:
            order = replace(like, machines=machines)
            return Decision((order,), reason=f"machines are missing: {described(order)}")

    return None
