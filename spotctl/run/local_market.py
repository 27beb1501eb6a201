"""The clock of the local market: the first launch starts it, and later launches join while machines run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pricing_data.units import format_time
from spotctl.errors import BadRequest
from spotctl.files.job.spec import JobSpec
from spotctl.wiring import library, local_provider

if TYPE_CHECKING:
    from spotctl.config import Settings


def on_one_market(specs: Sequence[JobSpec]) -> tuple[list[JobSpec], tuple[str, ...]]:
    """Jobs as they run next to each other, and a remark if that changes any of them: the local market has one clock.

    It begins at the first `local.start`, and runs at the lowest `local.speed`: at a higher one, the start-up of that
    job's program would take more market time than its file allows for.
    """
    asked = [spec.local for spec in specs if spec.is_local]
    if len({(one.start, one.speed) for one in asked}) < 2:
        return list(specs), ()
    start = next((one.start for one in asked if one.start is not None), None)
    speed = min(one.speed for one in asked)
    shared = [
        replace(spec, local=replace(spec.local, start=start, speed=speed)) if spec.is_local else spec for spec in specs
    ]
    begins = "" if start is None else f" from {format_time(start)} on"
    return shared, (f"the jobs share one local market, which runs at speed {speed:g}{begins}",)


def begin_market(spec: JobSpec, settings: Settings) -> None:
    """Sets the market's clock, unless other jobs run on it."""
    from spotctl.machines.local import MarketBusy
    from spotctl.planning.planner import local_market_start

    provider, start = local_provider(settings, spec), spec.local.start
    moment = local_market_start(library(settings)) if start is None else start
    try:
        provider.begin(moment, spec.local.speed)
    except MarketBusy:
        if provider.speed != spec.local.speed:
            raise BadRequest(
                f"local.speed is {spec.local.speed:g}, but other jobs run on the local market at {provider.speed:g}"
                f" (its time is {format_time(provider.now())}); wait for them, or set the same speed"
            ) from None


def market_now(specs: Sequence[JobSpec], settings: Settings) -> int | None:
    """The local market's time while machines run on it; None if the next launch starts the market again."""
    from spotctl.machines.base import MachineState

    if not all(spec.is_local for spec in specs):
        return None
    provider = local_provider(settings, specs[0])
    if provider.has_begun and any(machine.state is not MachineState.GONE for machine in provider.list({})):
        return provider.now()
    return None
