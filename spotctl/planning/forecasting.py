"""The forecast of a plan: its own decision object, played over the stored history (`bidbrain.forecast`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from bidbrain.decision.mixture_terms import Aim
from bidbrain.forecast.forecast import forecast
from bidbrain.forecast.seldom import Seldom
from bidbrain.forecast.values import Forecast, ForecastJob, KnownPast, LaunchTimes
from bidbrain.forecast.windows import PastMarket, clearly_costs_more
from bidbrain.strategies.base import Offer, Strategy
from bidbrain.strategies.recovery import AGILE, Recovery
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.files.job.spec import JobSpec
from spotctl.planning.overheads import with_local_starts
from spotctl.planning.roaming import declared_gb
from spotctl.planning.values import CLOCK, JobPlan

RATE_HOURS = 6
"""A job of unknown length is played for this long, for its dollars per hour."""

# How many decisions are played; those of a mixture, and those among many zones, take longer.
_DECISIONS, _MIXED, _ROAMING = 6000, 3000, 500
# A job of more than eight hours looks about this many times while nothing happens, and more often near its deadline.
_LOOKS, _LEAST_PAUSE, _LONGEST_LOOK = 96, 5 * MINUTE, 30 * MINUTE
# A job that is not done after this multiple of its expected length plus these hours counts as unfinished.
_UNFINISHED_AFTER, _UNFINISHED_AFTER_LEAST = 3, 6 * HOUR
# From the decision to launch until machines are ordered, and from the end of the work until they are returned: the time
# of requests to a cloud, or of this computer's processes, which the market's clock multiplies and other work delays.
_ON_CLOUD = LaunchTimes(order=MINUTE // 2, ending=2 * MINUTE)
_LOCAL_ORDER, _LOCAL_ENDING = 2.5, 0.6
_LOCAL_SPREAD = 0.4
CLOCKS_AT_RISK, _CLOCK_OF_UNKNOWN_LENGTH = 2, MINUTE
"""Finished clocks that may be lost with all machines: checkpoints are written while the next clock is computed."""


def forecast_of(plan: JobPlan) -> Forecast:
    """The cost and the length of a plan that is launched now. Each plan is played only once."""
    return _forecast(_PlayedPlan(plan))


@dataclass(frozen=True, slots=True, eq=False)
class _PlayedPlan:
    """A plan that is the same if only the turns of other jobs have changed: its first decision was made once."""

    plan: JobPlan

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PlayedPlan) and self.plan.first is other.plan.first

    def __hash__(self) -> int:
        return id(self.plan.first)


@lru_cache(maxsize=64)
def _forecast(played: _PlayedPlan) -> Forecast:
    return forecast(forecast_job(played.plan), known_past(played.plan))


def finish_by(plan: JobPlan) -> int:
    """The expected end of a plan's job."""
    return plan.at + round(forecast_of(plan).hours.median * HOUR)


def clearly_over_budget(plan: JobPlan) -> bool:
    """Whether a plan would cost so much more than its budget that a few plays show it."""
    budget = plan.job.budget_usd
    if budget is None or plan.work.assumed:
        return False
    return clearly_costs_more(PastMarket(forecast_job(plan), known_past(plan)), budget)


def known_past(plan: JobPlan) -> KnownPast:
    """The past that a plan's job is played over."""
    history = plan.built.market_history
    return KnownPast(history.at, history.histories, history.hazards, history.spells)


def forecast_job(plan: JobPlan) -> ForecastJob:
    """A plan's job as the forecast plays it."""
    decider, timed = plan.decider, plan.work.assumed or plan.work.longest < inf
    return ForecastJob(
        decider=deciders(plan, plan.at),
        offers=decider.offers,
        baseline=decider.baseline,
        most_nu=decider.most_nu,
        work=plan.built.work_left,
        longest=_longest(plan),
        billing=decider.billing,
        overheads=with_local_starts(plan.decider.overheads, plan.job.spec),
        reliable=decider.reliable,
        recovery=_recovery(plan),
        timed=timed,
        times=launch_times(plan.job.spec),
        budget_usd=plan.job.budget_usd if _speed_by_budget(plan) else None,
        lease=decider.lease,
        nodes=decider.limits.nodes,
        scaling=plan.scaling,
        speed_spread=plan.speed_spread,
        saved_gb=declared_gb(plan.job.spec),
        moving=_moving(plan),
        most_decisions=_most_decisions(plan),
        most_nodes=decider.limits.most if decider.limits.together else 0,
    )


def deciders(plan: JobPlan, at: int) -> Callable[[int], Strategy]:
    """A plan's decision object for a start at another moment than `at`; the object of a long job looks less often.

    Near its deadline, a gang counts its slack in steps of one look: with longer looks, the gang would turn to on-demand
    machines sooner than a run does.
    """
    decider, pause = plan.decider, round(plan.cost.estimate.hours * HOUR) // _LOOKS
    if pause <= _LEAST_PAUSE:
        return lambda start: decider.later(start - at)
    # The longer a job with a deadline looks away, the more slack the job keeps.
    part = 4 if decider.roaming is None else 2
    look = pause if decider.deadline is None else min(max(pause // part, decider.look), _LONGEST_LOOK)
    roaming = None if decider.roaming is None else decider.roaming.seldom(pause)
    seldom = replace(decider, look=look, roaming=roaming)

    def later(start: int) -> Strategy:
        return replace(seldom.later(start - at), strategy=Seldom(decider.strategy, pause))

    return later


def _moving(plan: JobPlan) -> Callable[[Market, Market], float]:
    """The cost of a move of the job's checkpoint; 0 if the size of the checkpoint is not declared."""
    roaming, gigabytes = plan.decider.roaming, declared_gb(plan.job.spec) or 0.0
    if roaming is None:
        return lambda _origin, _target: 0.0
    return lambda origin, target: roaming.move_usd(origin, target, gigabytes)


def _most_decisions(plan: JobPlan) -> int:
    if plan.decider.roaming is not None:
        return _ROAMING
    return _DECISIONS if plan.first.mixture is None else _MIXED


def _speed_by_budget(plan: JobPlan) -> bool:
    """Whether the budget decides how fast the job's machines are; for other jobs, the budget only ends the run."""
    return plan.first.mixture is not None and plan.first.mixture.aim is not Aim.LEAST_COST


def launch_times(spec: JobSpec) -> LaunchTimes:
    """How long a launch takes around its work, on the market's clock."""
    if not spec.is_local:
        return _ON_CLOUD
    second = spec.local.speed * SECOND
    return LaunchTimes(round(_LOCAL_ORDER * second), round(_LOCAL_ENDING * second), _LOCAL_SPREAD)


def _longest(plan: JobPlan) -> int:
    if plan.work.assumed:
        return RATE_HOURS * HOUR
    startup = with_local_starts(plan.decider.overheads, plan.job.spec).startup
    if plan.work.longest < inf:
        return startup + round(plan.work.longest * HOUR)
    return round(_UNFINISHED_AFTER * plan.cost.estimate.hours * HOUR) + _UNFINISHED_AFTER_LEAST


def _recovery_of_clocks(plan: JobPlan) -> Recovery:
    """The recovery of a trainer whose machines may all be lost at once."""
    at_risk = CLOCKS_AT_RISK * (HOUR / plan.decider.most_nu if plan.unit == CLOCK else _CLOCK_OF_UNKNOWN_LENGTH)
    return Recovery(plan.decider.speed, lambda _: at_risk)


def _recovery(plan: JobPlan) -> Recovery:
    """A trainer loses nothing, or without reliable machines the last clocks; a command repeats the work since its last
    checkpoint, or all of it without any."""
    if plan.first.interval is None:
        return AGILE if plan.decider.reliable is not None else _recovery_of_clocks(plan)
    every = plan.first.interval.every if plan.first.checkpoints is not None else inf

    def interval(_: Offer) -> float:
        return every

    return Recovery(plan.decider.speed, interval, resumes=plan.first.checkpoints is not None)
