"""The policies by name, and one window played under each."""

from collections.abc import Callable
from dataclasses import dataclass

from bidbrain.backtest.regions.decided import DecidedRegions
from bidbrain.backtest.regions.optimum import BestSchedule, cheapest, published_plan
from bidbrain.backtest.regions.replay import JobOutcome, Spending, ZonePolicy, play
from bidbrain.backtest.regions.rules import Window
from bidbrain.backtest.regions.skynomad import SkyNomad
from bidbrain.backtest.regions.uniform import LastResort, OnDemandThroughout, UniformInOneZone, UniformWithFailover
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
        return [PlayedWindow(name, window, _impossible(window))]
    return [PlayedWindow(name, window, play(window, _POLICIES[name](window)))]


def _impossible(window: Window) -> JobOutcome:
    """A job that no policy can finish in time counts as the cheapest on-demand machine from start to end."""
    hours = (window.job.work + window.job.delay) / HOUR
    usd = float(window.record.on_demand.min()) * window.job.machines * hours
    return JobOutcome(Spending(machines=usd), 0, 0, missed=not window.rules.published, course=())
