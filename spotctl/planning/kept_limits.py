"""Whether a plan is expected to keep its job's budget and deadline. Pure."""

from math import inf

from pricing_data.units import HOUR, usd_text
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.forecasting import forecast_of
from spotctl.planning.values import JobPlan

LEAST_IN_TIME = 0.5
"""A plan that keeps its deadline with a lower probability is refused."""


def violation(plan: JobPlan) -> OverBudget | NotInTime | None:
    """The job's budget or deadline that a plan is expected to violate, as an error."""
    budget, deadline, name = plan.job.budget_usd, plan.job.deadline, plan.job.spec.name
    # A job that can afford on-demand machines finishes on them in time.
    fallback = plan.decider.fallback
    in_time = deadline is not None and plan.at + round(plan.cost.fallback.hours * HOUR) <= deadline
    on_demand_keeps = in_time and fallback.machines > 0
    if plan.work.assumed or (budget is None and (deadline is None or on_demand_keeps)):
        return None
    forecast = forecast_of(plan)
    if budget is not None and forecast.usd.median > budget:
        low, high = forecast.usd.likely
        return OverBudget(
            f"{name}: expected cost {usd_text(forecast.usd.median)} ({usd_text(low)} to {usd_text(high)}) exceeds"
            f" the budget of {usd_text(budget)}; raise the budget, or reduce the job"
        )
    if deadline is None or (on_demand_keeps and plan.cost.fallback.usd <= (budget or inf)):
        return None
    if forecast.deadline_met((deadline - plan.at) / HOUR) >= LEAST_IN_TIME:
        return None
    hours = forecast.hours.quantile(LEAST_IN_TIME)
    cure = f"a budget of {usd_text(plan.cost.fallback.usd)} for on-demand machines"
    if fallback.machines < plan.decider.baseline.machines:
        cure = f"raise the quota of {fallback.offer.market.instance_type} on demand ('spotctl doctor' says how)"
    return NotInTime(
        f"{name}: expected to take {hours:.1f} hours, {hours - (deadline - plan.at) / HOUR:.1f} hours past"
        f" the deadline; allow more time, or {cure}"
    )
