"""Whether another strategy would serve a job better than the default one, where the job leaves the choice. Pure."""

from collections.abc import Callable
from dataclasses import replace

from bidbrain.forecast.paired import Trials, is_better
from bidbrain.forecast.windows import PastMarket
from bidbrain.strategies.names import DEADLINE
from spotctl.files.job.spec import AUTO
from spotctl.planning.forecasting import forecast_job, known_past
from spotctl.planning.market_history import ChosenStrategy
from spotctl.planning.values import JobPlan

RIVAL = "price-capacity"
"""This strategy bids the on-demand price. Strategies that learn their bids from the past do better when they play that
past than afterwards, so one of these could win a comparison without being better."""


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
