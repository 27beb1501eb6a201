"""A plan as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, SECOND, format_time, to_usd
from spotctl.planning.explain import Way, expected_of, launch_moment, unnamed_markets
from spotctl.planning.forecast import finish_by, forecast_of
from spotctl.planning.values import CheckpointInterval, Choice, JobPlan, PlannedMixture, PriceDate, QuotaPart
from spotctl.run.start.launch_plans import JobPlans
from spotctl.show.freshness import freshness_json
from spotctl.show.phrases import moment
from spotctl.show.plans.tables import zones_json

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec


def answers(planned: JobPlans) -> list[dict[str, Any]]:
    """Jobs that were planned together, with how current the prices of their clouds are.

    Fields:
        -> _plan_json
        -> spotctl.show.freshness:FRESHNESS
        pace: next points on the frontier of cost and time; empty without `--explain`, and for jobs planned together
        pace[].value_of_time_usd: the `value_of_time` that leads there, per hour
        pace[].cost_change: change of the median cost, as a share of it
        pace[].hours_change: change of the median duration, as a share of it
        ways: the training as a script, and as a trainer with and without a reliable machine; empty without `--explain`,
            for jobs planned together, and for a job that is no training or of unknown length
        ways[] -> _way_json
    """
    freshness = freshness_json(planned.clouds, planned.at)
    pace = [
        {
            "value_of_time_usd": to_usd(point.value_of_time),
            "cost_change": point.usd,
            "hours_change": point.hours,
        }
        for point in planned.pace
    ]
    ways = list(map(_way_json, planned.ways))
    return [{**_plan_json(plan), **freshness, "pace": pace, "ways": ways} for plan in planned.plans]


def _way_json(way: Way) -> dict[str, Any]:
    """One way to run a training."""
    usd, low, high, hours = expected_of(way) or (None,) * 4
    return {
        "way": way.name,  #: script, trainer with a reliable machine, or trainer without one
        "chosen": way.is_chosen,  #: whether it is the plan
        "cost_usd": usd,  #: median cost; null without such a plan, as for the next keys
        "cost_p10_usd": low,  #: cost that one job in ten stays below
        "cost_p90_usd": high,  #: cost that nine jobs in ten stay below
        "hours": hours,  #: median duration
    }


def _plan_json(plan: JobPlan) -> dict[str, Any]:
    """A job in the JSON of `spotctl plan --json`. Unknown values are null; keys may be added but never change.

    Fields:
        cluster: Ray cluster on which a job trains that rents nothing; its plan has few other keys
        cluster -> spotctl.files.job.spec:JobSpec.cluster
        rejected[].market: the market
        rejected[].why: why it is not used
        work: how much work the job is
        work.source: where that is known from
        work.assumed: whether the amount was assumed because nothing states it
        throughputs: throughput of each machine type
        throughputs.*: one machine type
        throughputs.*.per_hour: units of work that one machine does per hour
        throughputs.*.source: where that is known from
    """
    reliable = plan.decider.reliable
    return {
        "job": plan.job.spec.name,  #: name of the job
        #: allocations that would be rented now; several if the work is spread over markets, each -> _choice_json
        "choice": [_choice_json(choice) for choice in plan.cost.choice],
        "expected": _expected_json(plan),  #: forecast of the whole job -> _expected_json
        #: cost of the same work on the cheapest on-demand machines that are as fast; if the length of the job is
        #: unknown, of what the plan does in an hour
        "on_demand_usd": plan.cost.on_demand.usd,
        "rejected": [  #: other markets that were considered
            {"market": str(rejection.market), "why": plan.demand.worded(rejection.why)} for rejection in plan.rejected
        ],
        "rejected_unnamed": unnamed_markets(plan),  #: number of further markets that were rejected and are not listed
        "zones": zones_json(plan),  #: markets between which the job may move, each -> zones_json
        "at": format_time(launch_moment(plan)),  #: moment at which the plan was made
        #: moment at which the job's turn begins: later than `at` if it waits for quotas that other jobs use first; null
        #: if it waits for a job of unknown length
        "begins": moment(plan.at) if isfinite(plan.share.turn.begin) else None,
        #: objective that all jobs are planned with: min-cost is min-cost-slo if one of them has a deadline
        "policy": plan.share.policy,
        "strategy": plan.decision.strategy.name,  #: strategy that decides what to rent
        "reason": plan.demand.worded(plan.decision.reason),  #: why it decided so
        #: reliable machines of a training, rented on demand; null if it has none
        "reliable": None
        if reliable is None
        else {
            "market": str(reliable.offer.market),  #: their market
            "machines": reliable.machines,  #: their number
            "usd_per_hour": to_usd(reliable.offer.on_demand),  #: on-demand price of one of them
        },
        #: why the plan has a reliable machine or none; empty where the job file decides
        "reliable_reason": plan.reliable_reason,
        #: mixture of machine types, if the job asks for one -> _mixture_json
        "mixture": None if plan.decision.mixture is None else _mixture_json(plan.decision.mixture, plan.at),
        "quotas": [  #: quotas of the cloud that limit the job
            {
                "quota": share.quota.name,  #: name of the quota
                "unit": str(share.quota.unit),  #: what it counts
                "amount": share.quota.amount,  #: its limit
                "part": share.part.amount,  #: the job's part of it
                #: parts of all jobs that are planned together, the first turn first, each -> _part_json
                "parts": [_part_json(part, launch_moment(plan)) for part in share.parts],
            }
            for share in plan.share.quotas
        ],
        #: checkpoints of a command; null if it keeps none -> _checkpoints_json
        "checkpoints": None if plan.decision.checkpoints is None else _checkpoints_json(plan.decision.checkpoints),
        "work": {"source": plan.demand.work.source, "assumed": plan.demand.work.assumed},
        "prices": list(map(_price_json, plan.cost.price_dates)),  #: prices that the plan rests on, each -> _price_json
        "throughputs": {name: {"per_hour": rate.nu, "source": rate.source} for name, rate in plan.fleet.rates.items()},
    }


def _part_json(part: QuotaPart, at: int) -> dict[str, Any]:
    """A job's part of a quota.

    Fields:
        job: name of the job
        amount: its part, while its turn lasts
        begins: when its turn begins; null if that is unknown
        ends: expected end of its turn; null if that is unknown
    """
    moments = (part.turn.begin, part.turn.end)
    begin, end = (moment(at + round(hours * HOUR)) if isfinite(hours) else None for hours in moments)
    return {"job": part.job, "amount": part.amount, "begins": begin, "ends": end}


def _expected_json(plan: JobPlan) -> dict[str, Any]:
    """The forecast. What a job of unknown length costs per hour is known, but not what it costs.

    Fields:
        terms[].market: the market
        terms[].machines: most machines held there at a time
        terms[].cost_usd: cost there
    """
    forecast, known = forecast_of(plan), not plan.demand.work.assumed
    usd, hours, per_hour = forecast.usd.likely, forecast.hours.likely, forecast.usd_per_hour.likely
    budget, deadline = plan.job.budget_usd, plan.job.deadline
    return {
        #: median cost; null if the length of the job is unknown, as for most keys here
        "cost_usd": forecast.usd.median if known else None,
        "hours": forecast.hours.median if known else None,  #: median duration
        "finish_by": moment(finish_by(plan)) if known else None,  #: moment at which the job ends after that duration
        "cost_p10_usd": usd[0] if known else None,  #: cost that one job in ten stays below
        "cost_p90_usd": usd[1] if known else None,  #: cost that nine jobs in ten stay below
        #: costs that 0%, 5%, and so on to 100% of jobs stay below
        "cost_percentiles_usd": [forecast.usd.quantile(share / 20) for share in range(21)] if known else None,
        "hours_p10": hours[0] if known else None,  #: duration that one job in ten stays below
        "hours_p90": hours[1] if known else None,  #: duration that nine jobs in ten stay below
        #: probability that the job ends before its budget is used up; null without a budget
        "budget_kept": forecast.budget_kept(budget) if known and budget is not None else None,
        "deadline_met": (  #: probability that the job ends before its deadline; null without a deadline
            forecast.deadline_met((deadline - plan.at) / HOUR) if known and deadline is not None else None
        ),
        "basis": forecast.basis,  #: what the forecast rests on
        "usd_per_hour": forecast.usd_per_hour.median,  #: median cost per hour
        "usd_per_hour_p10": per_hour[0],  #: cost per hour that one job in ten stays below
        "usd_per_hour_p90": per_hour[1],  #: cost per hour that nine jobs in ten stay below
        "cost_usd_low": usd[0] if known else None,  #: the same as `cost_p10_usd`
        "cost_usd_high": usd[1] if known else None,  #: the same as `cost_p90_usd`
        "terms": [  #: parts of the median cost, by market
            {"market": str(term.market), "machines": term.machines, "cost_usd": term.usd}
            for term in (forecast.terms if known else ())
        ],
    }


def _mixture_json(mixture: PlannedMixture, at: int) -> dict[str, Any]:
    """The mixture that a job begins with, at a moment.

    Fields:
        phases[].machines.*: number of machines of this type
    """
    schedule = mixture.schedule
    begins = accumulate((phase.hours for phase in schedule.phases), initial=0.0)
    return {
        #: what the mixture was chosen for: least cost, shortest time within the budget, or most work per hour
        "aim": str(mixture.aim),
        #: expected cost; null if the length of the job is unknown
        "cost_usd": schedule.usd if isfinite(schedule.hours) else None,
        #: expected duration; null if the length of the job is unknown
        "hours": schedule.hours if isfinite(schedule.hours) else None,
        "phases": [  #: the mixtures that are held one after another
            {
                "begins": moment(at + round(begin * HOUR)),  #: moment at which it begins, if nothing is evicted
                "hours": phase.hours if isfinite(phase.hours) else None,  #: how long it is held
                "machines": mixture.machines(phase),  #: number of machines by type
            }
            for phase, begin in zip(schedule.phases, begins, strict=False)
        ],
    }


def _checkpoints_json(interval: CheckpointInterval) -> dict[str, Any]:
    """How often a command saves a checkpoint."""
    return {
        "every_seconds": interval.every / SECOND,  #: time between two checkpoints
        "cost_seconds": interval.cost / SECOND,  #: time that saving one takes
        #: mean time until a machine is evicted; null on demand
        "mean_life_seconds": interval.life / SECOND if isfinite(interval.life) else None,
    }


def _choice_json(choice: Choice) -> dict[str, Any]:
    """An allocation: machines of one market."""
    bid = choice.rent.bid
    return {
        "market": str(choice.rent.offer.market),  #: the market
        "machines": choice.rent.machines,  #: number of machines
        #: bid per machine in dollars per hour; null on demand, and where the cloud has no bids
        "bid": None if bid is None else to_usd(bid),
        "beta": choice.beta.probability,  #: probability that the machines are evicted within the next hour
        #: expected dollars per unit of work; null if no work would be done
        "cost_per_work": choice.usd_per_work if isfinite(choice.usd_per_work) else None,
        "price": to_usd(choice.price),  #: current price per machine in dollars per hour
        "beta_low": choice.beta.low,  #: lower end of the 95% interval of `beta`
        "beta_high": choice.beta.high,  #: upper end of the 95% interval of `beta`
        #: what the eviction rate rests on; `price` if only the price can evict the machines
        "beta_evidence": choice.evidence,
    }


def _price_json(price: PriceDate) -> dict[str, Any]:
    """A price and its age."""
    return {
        "market": str(price.market),  #: the market
        "purchase": "spot" if price.spot else "on-demand",  #: spot or on-demand
        "usd_per_hour": to_usd(price.price),  #: dollars per machine and hour
        #: moment at which it was last known to hold, or the date of the list that it is from
        "as_of": format_time(price.as_of),
        "source": price.source,  #: where it is from
    }


def answer(spec: JobSpec) -> dict[str, Any]:
    """The plan of a job on Ray in the JSON of `spotctl plan --json`: no machine is chosen, and the job costs nothing.

    Fields:
        job: name of the job
        cluster: Ray cluster on which it trains
        cluster -> spotctl.files.job.spec:JobSpec.cluster
        choice: empty, because nothing is rented
        expected: forecast of the job
        expected.cost_usd: 0
    """
    return {"job": spec.name, "cluster": spec.cluster, "choice": [], "expected": {"cost_usd": 0.0}}


def plan_text(spec: JobSpec) -> str:
    """The plan of a job on Ray in a line."""
    return f"{spec.name}: trains on {nodes_text(spec.cluster)}; nothing is rented, so it adds no cost"


def nodes_text(cluster: Mapping[str, Any]) -> str:
    """`1 reliable + 3 transient nodes of the Ray cluster at 10.0.0.4:6379`."""
    address = cluster["address"]
    where = f"the Ray cluster at {address}" if address else "the Ray cluster of RAY_ADDRESS, or one on this computer"
    return f"{cluster['reliable']} reliable + {cluster['transient']} transient nodes of {where}"
