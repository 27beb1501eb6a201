"""The forecast of a plan: its own decision object, played over the stored history
(`bidbrain.forecast`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf
from weakref import WeakKeyDictionary

from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.decision.parts import InParts
from bidbrain.forecast.forecast import MAX_WAIT, forecast_in, merits
from bidbrain.forecast.values import Forecast, ForecastJob
from bidbrain.forecast.windows import PastMarket, RareLooks, clearly_costs_more
from bidbrain.replay.market import Warnings
from bidbrain.strategies.base import AGILE, Offer, Recovery, Rent, Strategy
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, usd_text
from spotctl.home.errors import SpotctlError
from spotctl.planning.cost import checkpoints_of, mean_life
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.values import (
    CLOCK,
    RATE_HOURS,
    SPECIFIED,
    AllocatedJob,
    FirstDecision,
    JobPlan,
)

# How many decisions are played; those of a mixture, and those among many zones, take longer.
_DECISIONS, _MIXED, _ROAMING = 6000, 3000, 500
# A job of more than eight hours looks about this many times while nothing happens, and more often
# near its deadline.
_LOOKS, _MIN_PAUSE, _LONGEST_LOOK = 96, 5 * MINUTE, 30 * MINUTE
# A job of more than 300 hours looks even less often: by a 400th of the hours beyond them,
# also where an hour is paid up. Of its bill, an hour paid in vain, or a start so much later on a
# cheaper market, is less than a plan shows, and its plays would take thousands of decisions each.
_VERY_LONG, _LOOKS_BEYOND = 300 * HOUR, 400
# A job that is not done after this multiple of its expected length plus these hours, nor these hours
# after its deadline, counts as unfinished.
_UNFINISHED_AFTER, _UNFINISHED_AFTER_LEAST = 3, 6 * HOUR
CLOCKS_AT_RISK, _CLOCK_OF_UNKNOWN_LENGTH = 2, MINUTE
"""Finished clocks that may be lost with all machines: checkpoints are written while the next clock
is computed."""
_MATTERS = 0.02
"""Costs, chances and times that differ by less count as equal."""
_CHEAPER, _DEARER, _TRUSTED = 0.99, 1.1, 0.1
"""A plan is only compared further if few plays of it cost at most the first multiple of those of
another plan; at most the second, where few plays of that one are further than the last from all."""
_COMPUTER_SECONDS, _COMPUTER_SPREAD = 5.0, 0.15
"""Seconds by which work on this computer may differ from the job file's word, and the greatest
share of its length."""

_MARKETS = WeakKeyDictionary[FirstDecision, PastMarket]()
"""The markets in which plans are played, by their first decisions: a plan is the same if only the
turns of other jobs have changed."""
_PLAYED = WeakKeyDictionary[FirstDecision, Forecast]()
"""Forecasts of plans."""
_TRIED = WeakKeyDictionary[FirstDecision, Forecast]()
"""Forecasts of plans from few plays."""


def forecast_of(plan: JobPlan) -> Forecast:
    """The cost and the length of a plan that is launched now. Each plan is played only once."""
    if plan.decision not in _PLAYED:
        _PLAYED[plan.decision] = forecast_in(_market_of(plan))
    return _PLAYED[plan.decision]


def _market_of(plan: JobPlan) -> PastMarket:
    if plan.decision not in _MARKETS:
        _MARKETS[plan.decision] = PastMarket(forecast_job(plan), plan.fleet.market_history)
    return _MARKETS[plan.decision]


def turns_to_spot(plan: JobPlan) -> bool:
    """Whether a plan begins on on-demand machines and may rent spot machines later."""
    begins = all(choice.rent.bid is None for choice in plan.cost.choice)
    return begins and forecast_of(plan).on_spot > 0


def finish_by(plan: JobPlan) -> int:
    """The expected end of a plan's job."""
    hours = forecast_of(plan).hours.median * HOUR
    return plan.at + round(hours)


def clearly_over_budget(plan: JobPlan) -> bool:
    """Whether a plan would cost so much more than its budget that a few plays show it."""
    budget = plan.budget_usd
    if budget is None or plan.demand.work.assumed:
        return False
    return clearly_costs_more(_market_of(plan), budget)


def is_beaten(plan: JobPlan, best: JobPlan) -> bool:
    """Whether a forecast from a few plays shows that a plan is hardly cheaper than the best one so
    far, which keeps its limits."""
    if merits_of(best)[0] or plan.demand.aim is not Aim.LEAST_COST:
        return False

    worth = plan.demand.value_of_time_usd or 0.0
    costs = list[float]()
    for each in (plan, best):
        if each.decision not in _TRIED:
            market = _market_of(each)
            # The number of decisions does not change a play: both forecasts share those known.
            few = replace(market, job=replace(market.job, most_decisions=0))
            _TRIED[each.decision] = forecast_in(few)
        tried = _TRIED[each.decision]
        costs.append(tried.usd.median + worth * tried.hours.median)

    own, usual = costs
    outcome = forecast_of(best)
    known = outcome.usd.median + worth * outcome.hours.median
    is_trusted = abs(usual - known) < _TRUSTED * known
    return own > (_CHEAPER if is_trusted else _DEARER) * usual


def forecast_job(plan: JobPlan) -> ForecastJob:
    """A plan's job as the forecast plays it."""
    decider = plan.decider
    roaming = plan.decider.roaming
    mixture = plan.decision.mixture
    startup = decider.overheads.startup if plan.demand.startup is None else plan.demand.startup
    timed = plan.demand.work.assumed or plan.demand.work.longest < inf

    # The budget of other jobs does not decide how fast their machines are: it only ends the run.
    pays_for_speed = mixture is not None and plan.demand.aim is not Aim.LEAST_COST
    most_decisions = _DECISIONS if mixture is None else _MIXED
    rates = plan.fleet.rates
    rented = [choice.rent.offer.market for choice in plan.cost.choice]

    def move_usd(origin: Market, target: Market) -> float:
        if roaming is None:
            return 0.0
        return roaming.move_usd(origin, target, plan.demand.saved_gb or 0.0)

    local = plan.job.spec.local
    spreads = (rates[market.instance_type].spread for market in rented)
    spread = max(spreads, default=0.0)
    is_said = plan.demand.gang and plan.job.hours_from == SPECIFIED

    # Decisions about a deadline take the length as it is said, and so does their forecast.
    if plan.job.spec.is_local and is_said and plan.job.deadline is None:
        seconds = plan.cost.estimate.hours * 3600 / local.speed
        spread = spread or min(_COMPUTER_SPREAD, _COMPUTER_SECONDS / max(seconds, 1.0))

    decider_now = deciders(plan, plan.at)
    if plan.demand.work.assumed:
        longest = RATE_HOURS * HOUR
    elif plan.demand.work.longest < inf:
        longest = startup + round(plan.demand.work.longest * HOUR)
    else:
        unfinished = _UNFINISHED_AFTER * plan.cost.estimate.hours
        longest = round(unfinished * HOUR) + _UNFINISHED_AFTER_LEAST
        if decider.deadline is not None:
            # A job that waits rents nothing until its guard does.
            longest = max(longest, decider.deadline - plan.at + _UNFINISHED_AFTER_LEAST)

    overheads = replace(decider.overheads, startup=startup)
    budget_usd = plan.demand.budget_usd if pays_for_speed else None
    scalings = (rate.scaling for rate in rates.values() if rate.scaling)
    scaling = next(scalings, 0.0)
    decisions = most_decisions if roaming is None else _ROAMING
    most_nodes = decider.limits.most if decider.limits.together else 0
    warnings = None
    if plan.job.spec.is_local:
        warnings = Warnings(local.warning, local.unwarned)
    return ForecastJob(
        decider=decider_now,
        offers=decider.offers,
        baseline=decider.baseline,
        most_nu=decider.most_nu,
        work=plan.fleet.work,
        longest=longest,
        billing=decider.billing,
        overheads=overheads,
        reliable=decider.reliable,
        recovery=_recovery(plan),
        timed=timed,
        times=plan.demand.times,
        budget_usd=budget_usd,
        lease=decider.lease,
        nodes=decider.limits.nodes,
        scaling=scaling,
        speed_spread=spread,
        saved_gb=plan.demand.saved_gb,
        moving=move_usd,
        most_decisions=decisions,
        most_nodes=most_nodes,
        warnings=warnings,
    )


def deciders(plan: JobPlan, at: int) -> Callable[[int], Strategy]:
    """A plan's decision object for a start at another moment than `at`, with its parts in their
    time; the object of a long job looks less often."""
    made = _with_pauses(plan, at)
    if not plan.decision.parts:
        return made

    def later(start: int) -> Strategy:
        return InParts(
            made(start),
            tuple(replace(part, at=part.at + start - at) for part in plan.decision.parts),
        )

    return later


def _with_pauses(plan: JobPlan, at: int) -> Callable[[int], Decider]:
    """Near its deadline, a gang counts its slack in steps of one look: with longer looks, the gang
    would turn to on-demand machines sooner than a run does."""
    decider = plan.decider
    length = round(plan.cost.estimate.hours * HOUR)
    pause = length // _LOOKS
    if pause <= _MIN_PAUSE:
        return lambda start: decider.later(start - at)

    # The longer a job with a deadline looks away, the more slack the job keeps.
    part = 4 if decider.roaming is None else 2
    least = max(length - _VERY_LONG, 0) // _LOOKS_BEYOND
    longest = _LONGEST_LOOK + least // 2
    look = pause if decider.deadline is None else min(max(pause // part, decider.look), longest)
    roaming = None
    if decider.roaming is not None:
        roaming = decider.roaming.with_rare_looks(pause)
    rarely = replace(decider, look=look, roaming=roaming)

    def later(start: int) -> Decider:
        rare_looks = RareLooks(decider.strategy, pause, least)
        return replace(rarely.later(start - at), strategy=rare_looks)

    return later


def _recovery(plan: JobPlan) -> Recovery:
    """A trainer loses nothing, or without reliable machines the last clocks; a command repeats the
    work since its last checkpoint, or all of it without any."""
    decider = plan.decider
    resumes = plan.decision.checkpoints is not None
    if plan.decision.interval is None and decider.reliable is not None:
        return AGILE

    if plan.decision.interval is None:
        clock = HOUR / decider.most_nu if plan.demand.unit == CLOCK else _CLOCK_OF_UNKNOWN_LENGTH
        return Recovery(decider.speed, lambda _: CLOCKS_AT_RISK * clock)
    if not resumes:
        return Recovery(decider.speed, lambda _: inf, resumes=False)

    @cache
    def interval(offer: Offer) -> float:
        """As each attempt of a run has it: by the machines that it runs on."""
        rent = Rent(offer, decider.baseline.machines, offer.on_demand)
        life = mean_life(plan.fleet.market_history, rent, plan.fleet.prices[offer.market])
        saves = checkpoints_of(plan.job.spec.program, plan.demand.save_time, [life])
        assert saves is not None
        return saves.every

    return Recovery(decider.speed, interval)


def with_reliable(allocated: AllocatedJob, machines: int) -> AllocatedJob:
    """The job with this number of reliable machines."""
    spec = allocated.job.spec.with_reliable(machines)
    job = replace(allocated.job, spec=spec)
    return replace(allocated, job=job)


def best_of_both(allocated: AllocatedJob, plan_of: Callable[[AllocatedJob], JobPlan]) -> JobPlan:
    """The plan with one reliable machine or that with none, whichever is cheaper and as safe, with
    the reason.

    Raises what the plan with one raises, if there is no plan either way.
    """
    try:
        kept = plan_of(with_reliable(allocated, 1))
    except (NotInTime, OverBudget) as refusal:
        try:
            return replace(
                plan_of(with_reliable(allocated, 0)), reliable_reason=f"with one: {refusal}"
            )
        except SpotctlError:
            raise refusal from None

    try:
        bare = plan_of(with_reliable(allocated, 0))
    except SpotctlError as error:
        return replace(kept, reliable_reason=f"without one: {error}")

    if why := _why_kept(kept, bare):
        return replace(kept, reliable_reason=why)

    with_one = forecast_of(kept).usd.median
    without = forecast_of(bare).usd.median
    why = (
        f"{usd_text(without)} instead of {usd_text(with_one)} with one; if all machines are lost "
        "at once, training goes on from the last checkpoint, and clocks after it are done again"
    )

    return replace(bare, reliable_reason=why)


def _why_kept(kept: JobPlan, bare: JobPlan) -> str:
    """Why a job keeps its reliable machine; empty if it is cheaper and as safe without."""
    if kept.demand.work.assumed:
        return "the length of the job is unknown, and with one no clock is done twice"

    with_one = forecast_of(kept)
    without = forecast_of(bare)
    worth = kept.demand.value_of_time_usd or 0.0
    usd, bare_usd = (each.usd.median + worth * each.hours.median for each in (with_one, without))
    if without.usd.median > with_one.usd.median * (1 - _MATTERS):
        return (
            f"without one it would cost {usd_text(without.usd.median)}, and all machines may be "
            "lost at once"
        )
    hurries = kept.demand.aim is not Aim.LEAST_COST
    if bare_usd > usd * (1 - _MATTERS) or (
        hurries and without.hours.median > with_one.hours.median
    ):
        return (
            f"without one it would take {without.hours.median:.1f} h instead of "
            f"{with_one.hours.median:.1f} h"
        )

    budget = kept.demand.budget_usd
    deadline = kept.job.deadline
    hours = inf
    if deadline is not None:
        hours = (deadline - kept.at) / HOUR
    chances = (
        (each.budget_kept(budget or inf), each.deadline_met(hours)) for each in (with_one, without)
    )
    pairs = zip(*chances, strict=True)
    if any(before - after > _MATTERS for before, after in pairs):
        return "without one the job is less likely to keep its budget and its deadline"

    return ""


def hours_allowed(plan: JobPlan, *, weighed: bool = False) -> float:
    """How long a job may take: until its deadline, or twice its hours on machines of the reference
    type, where an hour of time has no value that could be weighed against dollars, or is `weighed`.
    """
    work = plan.demand.work
    if plan.job.deadline is not None:
        return (plan.job.deadline - plan.at) / HOUR
    has_value = plan.demand.value_of_time_usd is not None and not weighed
    if has_value or work.timed or work.assumed:
        return inf
    times = plan.demand.times
    around = (times.order + plan.fleet.overheads.startup + times.ending) / HOUR
    working = plan.demand.amount / plan.demand.reference_nu
    return MAX_WAIT * (working + around)


def merits_of(plan: JobPlan) -> tuple[float, ...]:
    """The merits of a plan, smaller for a better plan of the same job."""
    budget = plan.budget_usd
    worth = plan.demand.value_of_time_usd
    budget_usd = inf if budget is None else budget
    value_of_time = 0.0 if worth is None else worth
    hurries = plan.demand.aim is not Aim.LEAST_COST
    allowed = hours_allowed(plan)
    return merits(forecast_of(plan), allowed, budget_usd, value_of_time, hurries=hurries)
