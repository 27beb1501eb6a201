"""The clock of the local market: the first launch starts it, and later launches join while others
run.
"""

from collections.abc import Sequence
from dataclasses import replace

from pricing_data.library import Library, Selection
from pricing_data.units import HOUR, format_time
from spotctl.clouds.local.provider import LocalProvider
from spotctl.clouds.wiring import library, local_provider
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.jobs import is_running
from spotctl.log.state import RunState
from spotctl.log.statuses import not_ended
from spotctl.log.store import EventLog


def on_one_market(specs: Sequence[JobSpec]) -> tuple[list[JobSpec], tuple[str, ...]]:
    """The jobs changed to share one local market, which has one clock, and a remark if any of the
    jobs changed.

    The market begins at the first `local.start`, and runs at the lowest `local.speed`: at a higher
    speed, the start-up of that job's program would take more market time than the job file allows
    for.
    """
    asked = [spec.local for spec in specs if spec.is_local]
    if len({(local.start, local.speed) for local in asked}) < 2:
        return list(specs), ()

    start = next((local.start for local in asked if local.start is not None), None)
    speed = min(local.speed for local in asked)
    shared = [
        replace(spec, local=replace(spec.local, start=start, speed=speed))
        if spec.is_local
        else spec
        for spec in specs
    ]

    begins = "" if start is None else f" from {format_time(start)} on"
    return shared, (f"the jobs share one local market, which runs at speed {speed:g}{begins}",)


def begin_market(spec: JobSpec, settings: Settings) -> None:
    """Sets the market's clock, unless other jobs run on it."""
    provider = local_provider(settings, spec)
    start = spec.local.start
    moment = market_start(library(settings)) if start is None else start
    if not _start_market(provider, moment, spec, settings) and provider.speed != spec.local.speed:
        raise BadRequest(
            f"local.speed is {spec.local.speed:g}, but other jobs run on the local market at "
            f"{provider.speed:g}"
            f" (its time is {format_time(provider.now())}); wait for them, or set the same speed"
        )


def market_start(known: Library) -> int:
    """The moment at which the local market begins unless a job sets `local.start`."""
    from spotctl.planning.facts import replay_start

    return replay_start(known.table(known.require(Selection(clouds=("local",)))))


def continue_market(state: RunState, spec: JobSpec, settings: Settings) -> None:
    """Sets the market back to where a run was interrupted, if another job has restarted the market
    since then.
    """
    assert state.began is not None
    provider = local_provider(settings, spec)
    now = provider.now()
    waited = wall_us() - state.began.wall_us
    if state.at <= now <= state.started + round(waited * spec.local.speed) + HOUR:
        return

    # The run's last machines have ended with their leases at the latest.
    moment = max([state.at, *(held.lease_until for held in state.alive)])
    if not _start_market(provider, moment, spec, settings) and now < state.at:
        raise BadRequest(
            f"run {state.run} was interrupted at {format_time(state.at)}, but the local market was "
            "started again for"
            f" other jobs (its time is {format_time(now)}); resume it once they have ended "
            "(spotctl status)"
        )


def _start_market(provider: LocalProvider, moment: int, spec: JobSpec, settings: Settings) -> bool:
    """Starts the market at a moment; False if other jobs run on it."""
    from spotctl.clouds.local.provider import MarketBusy

    if _is_used(settings, spec.name):
        return False

    try:
        provider.begin(moment, spec.local.speed)
    except MarketBusy:
        return False
    return True


def _is_used(settings: Settings, job: str = "") -> bool:
    """Whether processes attend to runs on the local market, other than of a `job`. A run may hold
    no machine now.
    """
    from spotctl.clouds.local.provider import LocalProvider

    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return False
    with EventLog(paths.log) as log:
        return any(
            began.job != job
            and began.provider == LocalProvider.name
            and is_running(paths.locks, began.job)
            for began in not_ended(log).values()
        )


def market_now(specs: Sequence[JobSpec], settings: Settings) -> int | None:
    """The local market's time while jobs run on it; None if the next launch starts the market
    again.
    """
    from spotctl.clouds.provider import MachineState

    if not all(spec.is_local for spec in specs):
        return None

    provider = local_provider(settings, specs[0])
    if not provider.has_begun:
        return None

    held = any(machine.state is not MachineState.GONE for machine in provider.list({}))
    return provider.now() if held or _is_used(settings) else None
