"""Plans of jobs that would be launched now, for `plan`, `launch` and the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pricing_data.units import HOUR, parse_duration, parse_time
from spotctl.files.job.spec import check_names, check_rents
from spotctl.planning.planner import JobPlans, When, plan_jobs
from spotctl.run.local_market import market_now
from spotctl.wall_clock import wall_us
from spotctl.wiring import library

if TYPE_CHECKING:
    from spotctl.config import Settings
    from spotctl.files.job.spec import JobSpec


def planned_jobs(specs: Sequence[JobSpec], settings: Settings, at: str = "", hours: str = "") -> JobPlans:
    """Plans jobs together, from stored prices. `at` is another moment than now, `hours` the length of a job that does
    not say."""
    check_names(specs)
    check_rents(specs)
    when = When(
        wall_us(),
        market_now(specs, settings),
        parse_time(at) if at else None,
        parse_duration(hours) / HOUR if hours else None,
    )
    return plan_jobs(specs, settings, library(settings), when)
