"""Whether a training rents a reliable machine, where its job file leaves that to the plan. Pure.

Without one, the model is only on machines that may all be evicted at once. The training then waits for machines,
continues from the last checkpoint, which the runner keeps, and repeats the clocks after it.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from pricing_data.units import HOUR, usd_text
from spotctl.home.errors import SpotctlError
from spotctl.planning.allocation import AllocatedJob
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.forecasting import forecast_of
from spotctl.planning.values import JobPlan

_MATTERS = 0.02
"""Costs, chances and times that differ by less count as equal."""
_MOST_SLOWDOWN = 1.25
"""A plan that takes this much longer is not chosen for its lower cost."""


def with_reliable(allocated: AllocatedJob, machines: int) -> AllocatedJob:
    """The job with this number of reliable machines."""
    return replace(allocated, job=replace(allocated.job, spec=allocated.job.spec.with_reliable(machines)))


def best_of_both(allocated: AllocatedJob, plan_of: Callable[[AllocatedJob], JobPlan]) -> JobPlan:
    """The plan with one reliable machine or that with none, whichever is cheaper and as safe, with the reason.

    Raises what the plan with one raises, if there is no plan either way.
    """
    try:
        kept = plan_of(with_reliable(allocated, 1))
    except (NotInTime, OverBudget) as error:
        return _without(allocated, plan_of, error)
    try:
        bare = plan_of(with_reliable(allocated, 0))
    except SpotctlError as error:
        return replace(kept, reliable_reason=f"without one: {error}")
    why = _why_kept(kept, bare)
    return replace(kept, reliable_reason=why) if why else replace(bare, reliable_reason=_why_none(kept, bare))


def _without(
    allocated: AllocatedJob, plan_of: Callable[[AllocatedJob], JobPlan], refusal: NotInTime | OverBudget
) -> JobPlan:
    """The plan without reliable machines of a job that cannot be planned with one."""
    try:
        return replace(plan_of(with_reliable(allocated, 0)), reliable_reason=f"with one: {refusal}")
    except SpotctlError:
        raise refusal from None


def _why_kept(kept: JobPlan, bare: JobPlan) -> str:
    """Why a job keeps its reliable machine; empty if it is cheaper and as safe without."""
    if kept.work.assumed:
        return "the length of the job is unknown, and with one no clock is done twice"
    with_one, without = forecast_of(kept), forecast_of(bare)
    if without.usd.median > with_one.usd.median * (1 - _MATTERS):
        return f"without one it would cost {usd_text(without.usd.median)}, and all machines may be lost at once"
    if without.hours.median > with_one.hours.median * _MOST_SLOWDOWN:
        return f"without one it would take {without.hours.median:.1f} h instead of {with_one.hours.median:.1f} h"
    budget, deadline = kept.job.budget_usd, kept.job.deadline
    hours = inf if deadline is None else (deadline - kept.at) / HOUR
    chances = ((each.budget_kept(budget or inf), each.deadline_met(hours)) for each in (with_one, without))
    if any(before - after > _MATTERS for before, after in zip(*chances, strict=True)):
        return "without one the job is less likely to keep its budget and its deadline"
    return ""


def _why_none(kept: JobPlan, bare: JobPlan) -> str:
    before, after = (forecast_of(plan).usd.median for plan in (kept, bare))
    return (
        f"{usd_text(after)} instead of {usd_text(before)} with one; if all machines are lost at once, training goes on"
        " from the last checkpoint, and clocks after it are done again"
    )
