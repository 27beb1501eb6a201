"""The clock of the local market: the first launch starts it, and later launches join while machines run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pricing_data.units import format_time
from spotctl.errors import BadRequest
from spotctl.files.job.spec import JobSpec
from spotctl.wiring import library, local_provider

if TYPE_CHECKING:
    from spotctl.config import Settings


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
