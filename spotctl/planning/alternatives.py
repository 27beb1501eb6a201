"""Choices that a job file leaves to the plan: another strategy, and a training's reliable machine. Pure.

Without a reliable machine, the model is only on machines that may all be evicted at once. The training then waits for
machines, continues from the last checkpoint, which the runner keeps, and repeats the clocks after it.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from bidbrain.forecast.paired import Trials, is_better
from bidbrain.forecast.windows import PastMarket
from bidbrain.strategies.names import DEADLINE
from pricing_data.units import HOUR, usd_text
from spotctl.files.job.spec import AUTO
from spotctl.home.errors import SpotctlError
from spotctl.planning.allocation import AllocatedJob
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.forecasting import forecast_job, forecast_of, known_past
from spotctl.planning.market_history import ChosenStrategy
from spotctl.planning.values import JobPlan

_MATTERS = 0.02
"""Costs, chances and times that differ by less count as equal."""
_MOST_SLOWDOWN = 1.25
"""A plan that takes this much longer is not chosen for its lower cost."""
RIVAL = "price-capacity"
"""This strategy bids the on-demand price. Strategies that learn their bids from the past do better when they play that
past than afterwards, so one of these could win a comparison without being better."""


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


def better_plan(plan: JobPlan, plan_by: Callable[[ChosenStrategy], JobPlan | None]) -> JobPlan:
    """The plan, or its rival's if that is cheaper or faster in plays of the past, and no worse."""
    if not _leaves_the_choice(plan):
        return plan
    default = plan.built.strategy.name
    rival = None if default == RIVAL else plan_by(_chosen(default))
    return plan if rival is None or not is_better(_trials(rival, plan), _trials(plan, plan)) else rival


def _leaves_the_choice(plan: JobPlan) -> bool:
    """Whether the job names no strategy, and a strategy by itself decides about machines whose work is known."""
    return (
        plan.job.spec.strategy in (AUTO, DEADLINE)
        and plan.decider.roaming is None
        and plan.first.mixture is None
        and not plan.work.assumed
    )


def _chosen(default: str) -> ChosenStrategy:
    return ChosenStrategy(RIVAL, f"cheaper or faster than {default}, and no worse, when both play the last weeks")


def _trials(plan: JobPlan, first: JobPlan) -> Trials:
    """The plays of a plan's decision object, for as long as the first plan may take."""
    job = forecast_job(plan)
    return Trials.of(PastMarket(replace(job, longest=forecast_job(first).longest), known_past(plan)))
