"""Plans jobs from what is stored: reads prices, earlier runs and the time zone for the pure `plans_of`."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pricing_data.library import Library, Selection
from pricing_data.units import SECOND, age
from spotctl.files.job.spec import JobSpec
from spotctl.files.parallel_files import profiles_of
from spotctl.home import account_quotas
from spotctl.home.garbage import without_garbage_collection
from spotctl.home.quotas import Quota
from spotctl.log.statuses import unfinished_runs
from spotctl.planning.on_demand_needs import on_demand_remarks
from spotctl.planning.quota_use import MachineCounts, left_of, used
from spotctl.planning.request import MarketData, PlanRequest, beginning, plans_of, replay_start
from spotctl.planning.values import JobPlan
from spotctl.run.start.earlier_runs import learn_from_runs

if TYPE_CHECKING:
    from pricing_data.catalog import Catalog
    from spotctl.home.config import Settings

_LOCALTIME = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class JobPlans:
    """The plans of some jobs, and remarks on the data they rest on."""

    plans: list[JobPlan]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """The moment to plan for.

    `now` is this computer's clock, and `market_now` the local market's time while machines run there. `at` is a moment
    that the user names instead, `hours` the user's estimate of a job's length.
    """

    now: int
    market_now: int | None = None
    at: int | None = None
    hours: float | None = None


def plan_jobs(specs: Sequence[JobSpec], settings: Settings, library: Library, when: PlanMoment) -> JobPlans:
    """Plans for jobs that begin together, with what their earlier runs measured."""
    data = market_data(library, specs)
    begin = beginning(specs, data.table, when.now, when.market_now, when.at)
    learned = learn_from_runs(settings, library, specs, when.now)
    quotas, held = quotas_left(settings, data.catalog, when.now)
    quotas += on_demand_left(settings, data.catalog, when.now)
    stated = _stated(settings, {cloud for spec in specs for cloud in spec.resources.clouds}, when.now)
    profiles = profiles_of(specs)
    request = PlanRequest(tuple(specs), begin.at, computer_zone(), when.hours, quotas=quotas, profiles=profiles)
    measured = tuple(f"{name}: {words}" for name, estimates in learned.items() for words in estimates.words())
    plans = plans_of(request, data, learned)
    lacking = on_demand_remarks(plans, *_on_demand(settings, when.now), data.catalog)
    return JobPlans(plans, begin.remarks + stated + held + measured + lacking)


def on_demand_left(settings: Settings, catalog: Catalog, now: int) -> tuple[Quota, ...]:
    """The known quotas of on-demand machines without what running jobs of this home hold."""
    return left_of(*_on_demand(settings, now), catalog)


def _on_demand(settings: Settings, now: int) -> tuple[Sequence[Quota], Sequence[MachineCounts]]:
    quotas = account_quotas.known(settings, now, spot=False)
    return quotas, [state.on_demand_machines for state in unfinished_runs(settings).values()] if quotas else []


def quotas_left(settings: Settings, catalog: Catalog, now: int) -> tuple[tuple[Quota, ...], tuple[str, ...]]:
    """The known quotas of spot machines without what running jobs of this home hold, and remarks on what they hold."""
    quotas = account_quotas.known(settings, now)
    if not quotas:
        return (), ()
    running = {job: state.spot_machines for job, state in unfinished_runs(settings).items()}
    left = left_of(quotas, list(running.values()), catalog)
    amounts = ((quota, {job: used(quota, machines, catalog) for job, machines in running.items()}) for quota in left)
    remarks = (
        f"quota {quota.name}: {sum(by_job.values())} {quota.unit} are held by running jobs"
        f" ({', '.join(job for job, amount in by_job.items() if amount)}), {quota.amount} are left"
        for quota, by_job in amounts
        if any(by_job.values())
    )
    return left, tuple(remarks)


def _stated(settings: Settings, clouds: Set[str], now: int) -> tuple[str, ...]:
    """A remark for each quota that these clouds stated, with its age."""
    read_quotas = [read for read in account_quotas.stated(settings, now) if read.quota.cloud in clouds]
    return tuple(f"quota {read.quota}, as read {age((now - read.read) / SECOND)} ago" for read in read_quotas)


def market_data(library: Library, specs: Sequence[JobSpec]) -> MarketData:
    """Everything stored about the clouds that jobs may use; the table is empty if nothing is stored."""
    clouds = tuple(dict.fromkeys(cloud for spec in specs for cloud in spec.resources.clouds))
    # Markets are read by tens of thousands.
    with without_garbage_collection():
        table, catalog = library.table(library.select(Selection(clouds=clouds))).with_last_seen(), library.catalog
    figures = tuple(figure for cloud in clouds for figure in library.store.interruptions(cloud))
    return MarketData(table, catalog, figures)


def local_market_start(library: Library) -> int:
    """The moment at which the local market begins unless a job sets `local.start`."""
    return replay_start(library.table(library.require(Selection(clouds=("local",)))))


def computer_zone() -> tzinfo:
    """The computer's time zone with its daylight-saving rules, from TZ or /etc/localtime; else its current offset."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with _LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        # TZ may also hold a POSIX rule, such as CET-1CEST, or nothing that is installed here.
        offset = datetime.now().astimezone().tzinfo
        assert offset is not None
        return offset
