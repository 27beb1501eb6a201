"""The policies by name, one window played under each, and those that are practiced today: `on-demand`, and uniform
progress in one zone or with failover.

Uniform progress compares the work done with the share of the time that has passed. A job that is behind takes an
on-demand machine where no spot is up; one that is two delays ahead gives it back. Close to the deadline a safety net
decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bidbrain.lab.regions.decided import DecidedRegions
from bidbrain.lab.regions.optimum import BestSchedule, cheapest, published_plan
from bidbrain.lab.regions.replay import Field, JobOutcome, Spending, Whereabouts, Window, ZonePolicy, play
from bidbrain.lab.regions.skynomad import SkyNomad
from pricing_data.units import HOUR

ONE_ZONE = "up-one-zone"

_POLICIES: dict[str, Callable[[Window], ZonePolicy]] = {
    "on-demand": lambda _: OnDemandThroughout(),
    ONE_ZONE: lambda _: UniformInOneZone(),
    "up-switch": lambda _: LastResort(UniformWithFailover()),
    "skynomad": lambda _: LastResort(SkyNomad()),
    "regions": lambda _: DecidedRegions(),
    "optimal": lambda window: BestSchedule(cheapest(window)),
    "optimal-published": lambda window: BestSchedule(published_plan(window)),
}
NAMES = tuple(_POLICIES)
ELASTIC_NAMES = ("on-demand", "up-switch", "skynomad", "regions")
"""Policies of jobs that work with fewer machines than they want: those with a net that holds at any speed."""


@dataclass(frozen=True, slots=True)
class PlayedWindow:
    """One window under one policy. A policy of one zone is played in each zone by itself."""

    policy: str
    window: Window
    outcome: JobOutcome


def played(window: Window, name: str) -> list[PlayedWindow]:
    if name == ONE_ZONE and len(window.record.zones) > 1:
        return [result for zone in window.record.zones for result in played(window.only(zone), name)]
    if not window.job.possible(window.record.gap):
        # A job that no policy can finish in time counts as the cheapest on-demand machine from start to end.
        hours = (window.job.work + window.job.delay) / HOUR
        usd = float(window.record.on_demand.min()) * window.job.machines * hours
        missed = not window.rules.published
        return [PlayedWindow(name, window, JobOutcome(Spending(machines=usd), 0, 0, missed=missed, course=()))]
    return [PlayedWindow(name, window, play(window, _POLICIES[name](window)))]


_ON_DEMAND, _SPOT, _NOTHING = "on-demand", "spot", "nothing"


def steps_needed(field: Field, delays: int = 1) -> int:
    """Whole steps that the work needs after that many starts."""
    return -(-(field.work_left + delays * field.job.delay) // field.gap)


def cheapest_on_demand(field: Field) -> int:
    """Where finishing on demand costs least, with the move."""
    hours = field.work_left / 3_600_000_000
    return min(range(len(field.zones)), key=lambda zone: field.on_demand[zone] * hours + field.move_usd(zone))


class OnDemandThroughout:
    """The cheapest on-demand machine from the first step."""

    bills_last_step = False

    def step(self, field: Field) -> None:
        if field.machine is None:
            field.start_on_demand(cheapest_on_demand(field))


@dataclass(slots=True)
class LastResort:
    """A policy until one more step without work could miss the deadline; from then on demand, to the end."""

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


def _wanted(field: Field, machine: Whereabouts | None, *, spot: bool) -> tuple[str, bool]:
    """The kind of machine that uniform progress asks for, and whether it leaves on-demand although time is short."""
    elapsed, work, delay = field.now * field.gap, field.job.work, field.job.delay
    done = work - field.work_left
    on_demand = machine is not None and not machine.spot
    ahead = done - (elapsed + 2 * delay) * work / field.job.deadline
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
    """Uniform progress in one zone, where the policy sees at once whether spot is up. Its last step is billed."""

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


@dataclass(slots=True)
class UniformWithFailover:
    """Uniform progress that looks for spot by price, and last in the region that it lost spot in."""

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
            order = sorted(range(len(field.zones)), key=lambda zone: field.spot[zone])
            if self.last is not None:
                lost = field.regions[self.last]
                order.sort(key=lambda zone: field.regions[zone] == lost)
            if any(field.start_spot(zone) for zone in order):
                return
            field.stop()
            if leaves or _wanted(field, None, spot=False)[0] != _ON_DEMAND:
                return
        zone = running.zone if running is not None else field.home
        field.start_on_demand(zone if zone is not None else 0)
