"""The policies by name, one window played under each, those that are practiced today (`on-demand`,
and uniform progress in one zone or with failover), and `regions`.

Uniform progress compares the work done with the share of the time that has passed. A job that is
behind takes an on-demand machine where no spot is up; one that is two delays ahead gives it back.
Close to the deadline a safety net decides.

`regions` is the `Decider` of plans and runs: it decides from what the field shows, and orders what
it wants. A zone that has refused is not asked again in the same step, as a market that has refused
rests in a run.
"""

from dataclasses import dataclass

import numpy as np

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.roaming import Roaming, regions_of
from bidbrain.lab.regions.optimum import BestSchedule, cheapest, published_plan
from bidbrain.lab.regions.replay import (
    Field,
    PlayedWindow,
    Spending,
    Window,
    ZonePolicy,
    play,
)
from bidbrain.lab.regions.skynomad import SkyNomad
from bidbrain.strategies.base import (
    Decision,
    Holding,
    Look,
    Offer,
    Overheads,
    Rent,
    SavedState,
    Situation,
)
from bidbrain.strategies.regions import Running
from bidbrain.strategies.spells import Known
from bidbrain.strategies.standard import AlwaysOnDemand
from pricing_data.market import Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

ONE_ZONE = "up-one-zone"

NAMES = ("on-demand", ONE_ZONE, "up-switch", "skynomad", "regions", "optimal", "optimal-published")
ELASTIC_NAMES = ("on-demand", "up-switch", "skynomad", "regions")
"""Policies of jobs that work with fewer machines than they want: those with a net that holds at any
speed."""


def played(window: Window, name: str) -> list[PlayedWindow]:
    if name == ONE_ZONE and len(window.record.zones) > 1:
        return [
            result for zone in window.record.zones for result in played(window.only(zone), name)
        ]

    if not window.job.possible(window.record.gap):
        # A job that no policy can finish in time counts as the cheapest on-demand machine from
        # start to end.
        hours = (window.job.work + window.job.delay) / HOUR
        lowest_usd = float(window.record.on_demand.min())
        usd = lowest_usd * window.job.machines * hours
        missed = not window.rules.published
        spending = Spending(machines=usd)
        return [PlayedWindow(name, window, spending, 0, 0, missed=missed, course=())]

    # A new policy for one window; those with foresight read all of it.
    policy: ZonePolicy
    match name:
        case "on-demand":
            policy = OnDemandThroughout()
        case "up-one-zone":
            policy = UniformInOneZone()
        case "up-switch":
            policy = LastResort(UniformWithFailover())
        case "skynomad":
            policy = LastResort(SkyNomad())
        case "regions":
            policy = DecidedRegions()
        case "optimal":
            policy = BestSchedule(cheapest(window))
        case _:
            policy = BestSchedule(published_plan(window))

    return [play(window, policy, name)]


_ON_DEMAND, _SPOT, _NOTHING = "on-demand", "spot", "nothing"


def steps_needed(field: Field, delays: int = 1) -> int:
    """Whole steps that the work needs after that many starts."""
    work_and_delays = field.work_left + delays * field.job.delay
    minus_steps = -work_and_delays // field.gap
    return -minus_steps


def cheapest_on_demand(field: Field) -> int:
    """Where finishing on demand costs least, with the move."""
    hours = field.work_left / 3_600_000_000
    return min(
        range(len(field.zones)),
        key=lambda zone: field.on_demand[zone] * hours + field.move_usd(zone),
    )


class OnDemandThroughout:
    """The cheapest on-demand machine from the first step."""

    bills_last_step = False

    def step(self, field: Field) -> None:
        if field.machine is None:
            field.start_on_demand(cheapest_on_demand(field))


@dataclass(slots=True)
class LastResort:
    """A policy until one more step without work could miss the deadline; from then on demand, to
    the end.
    """

    policy: ZonePolicy
    caught: bool = False
    bills_last_step = False

    def step(self, field: Field) -> None:
        self.caught = self.caught or steps_needed(field) >= field.steps_left
        if not self.caught:
            self.policy.step(field)
        elif field.machine is None:
            field.start_on_demand(cheapest_on_demand(field))
        elif field.machine.spot:
            field.start_on_demand(field.machine.zone)


def _wanted(field: Field, machine: Running | None, *, spot: bool) -> tuple[str, bool]:
    """The kind of machine that uniform progress asks for, and whether it leaves on-demand although
    time is short.
    """
    elapsed = field.now * field.gap
    work = field.job.work
    delay = field.job.delay
    done = work - field.work_left
    on_demand = machine is not None and not machine.spot
    elapsed_and_delays = elapsed + 2 * delay
    expected = elapsed_and_delays * work / field.job.deadline
    ahead = done - expected
    ask = _SPOT if spot else _ON_DEMAND if done < elapsed * work / field.job.deadline else _NOTHING
    if on_demand and (not spot or ahead <= 0):
        ask = _ON_DEMAND
    if (machine is None or on_demand) and steps_needed(field, 2) > field.steps_left:
        ask = _ON_DEMAND

    if steps_needed(field) >= field.steps_left:
        works = machine is not None and machine.spot and not field.delay_left
        ask = _SPOT if works else _ON_DEMAND

    leaves = on_demand and spot and ask == _ON_DEMAND and ahead > 0
    return (_SPOT if leaves else ask), leaves


class UniformInOneZone:
    """Uniform progress in one zone, where the policy sees at once whether spot is up. Its last step
    is billed.
    """

    bills_last_step = True

    def step(self, field: Field) -> None:
        running = field.machine
        if running is not None and running.spot:
            return

        ask, _ = _wanted(field, running, spot=True)
        if ask == _SPOT and field.start_spot(0):
            return

        ask, _ = _wanted(field, running, spot=False)
        if ask == _ON_DEMAND:
            field.start_on_demand(0)
        elif running is not None:
            field.stop()


class UniformWithFailover:
    """Uniform progress that looks for spot by price, and last in the region that it lost spot
    in."""

    last: int | None = None
    bills_last_step = False

    def step(self, field: Field) -> None:
        running = field.machine
        if running is not None:
            self.last = running.zone

        ask, leaves = _wanted(field, running, spot=True)
        if running is not None and ask == (_SPOT if running.spot else _ON_DEMAND):
            return

        if ask == _SPOT:
            order = np.argsort(field.spot, kind="stable").tolist()
            if self.last is not None:
                lost = field.regions[self.last]
                elsewhere = [zone for zone in order if field.regions[zone] != lost]
                there = [zone for zone in order if field.regions[zone] == lost]
                order = [*elsewhere, *there]

            if any(field.start_spot(zone) for zone in order):
                return

            field.stop()
            if leaves or _wanted(field, None, spot=False)[0] != _ON_DEMAND:
                return

        zone = running.zone if running is not None else field.home
        field.start_on_demand(zone if zone is not None else 0)


_WHOLE = 1.0
"""The checkpoint counts as one GB, whose price of moving is that of the whole checkpoint."""


class DecidedRegions:
    """One job under `regions`."""

    bills_last_step = False

    def __init__(self) -> None:
        self._decider: Decider | None = None
        self._looks = list[Look]()
        self._held: Running | None = None
        self._wake_at = 0

    def step(self, field: Field) -> None:
        """Decides, if the decider wants to by now or machines were lost, until an order is granted
        or none is made.
        """
        self._decider = self._decider or _decider_of(field)
        now = field.now * field.gap
        if self._held is not None and self._held.spot:
            self._saw(now, self._held.zone, up=field.machine is not None)
        if field.machine is not None and field.machine == self._held and now < self._wake_at:
            return

        refused = set[int]()
        while True:
            decision = self._decider.decide(self._situation(field, self._decider, refused))
            zone = self._follow(field, self._decider, decision)
            if zone is None:
                break
            refused.add(zone)

        self._held = field.machine
        self._wake_at = now if decision.wake_at is None else decision.wake_at

    def _follow(self, field: Field, decider: Decider, decision: Decision) -> int | None:
        """Does what was decided; the zone that refused, if one did."""
        for order in decision.rents:
            zone = decider.offers.index(order.offer)
            if not order.spot:
                field.start_on_demand(zone)
                return None

            started = field.start_spot(zone)
            self._saw(field.now * field.gap, zone, up=started)
            return None if started else zone

        if decision.returns:
            field.stop()

        return None

    def _saw(self, now: int, zone: int, *, up: bool) -> None:
        assert self._decider is not None
        offer = self._decider.offers[zone]
        look = Look(now, offer.market, up)
        self._looks.append(look)

    def _situation(self, field: Field, decider: Decider, refused: set[int]) -> Situation:
        now = field.now * field.gap
        job = field.job
        held = field.machine
        offers = decider.offers
        holdings: tuple[Holding, ...] = ()
        if held is not None:
            offer = offers[held.zone]
            machines = round(field.share * job.machines)
            rent = Rent(offer, machines, offer.on_demand if held.spot else None)
            holdings = (Holding(0, rent, now, now + field.delay_left),)

        priced = zip(offers, field.spot.tolist(), strict=True)
        prices = {offer: round(usd * NANOS_PER_DOLLAR) for offer, usd in priced}
        opened = (offer for zone, offer in enumerate(offers) if zone not in refused)
        open_offers = tuple(opened)
        saved = None
        if field.home is not None:
            saved = SavedState(offers[field.home].market, _WHOLE)

        return Situation(
            now=now,
            offers=open_offers,
            price=lambda offer: prices[offer],
            holdings=holdings,
            baseline=decider.baseline,
            most_nu=decider.most_nu,
            work_left=float(field.work_left) * job.machines,
            looks=lambda: tuple(self._looks),
            saved=saved,
            deadline=decider.deadline,
        )


def _decider_of(field: Field) -> Decider:
    job = field.job
    offers = list[Offer]()
    for zone, region, usd in zip(field.zones, field.regions, field.on_demand.tolist(), strict=True):
        market = Market("local", region, zone, "machine")
        offers.append(Offer(market, 1.0, round(usd * NANOS_PER_DOLLAR)))

    cheapest = min(offers, key=lambda offer: offer.on_demand)
    known = Known.nothing(regions_of(offers))
    baseline = Rent(cheapest, job.machines, None)
    limits = MachineLimits(job.at_least, job.machines, {}, together=True)
    overheads = Overheads(startup=field.longest_delay, eviction=0, resize=0)
    deadline = field.steps * field.gap
    roaming = Roaming(tuple(offers), field.moving, known, _WHOLE)
    return Decider(
        offers=tuple(offers),
        baseline=baseline,
        reliable=None,
        most_nu=float(job.machines),
        limits=limits,
        overheads=overheads,
        deadline=deadline,
        strategy=AlwaysOnDemand(),
        billing=billing_rule("per-second"),
        lease=field.gap,
        look=field.gap,
        roaming=roaming,
    )
