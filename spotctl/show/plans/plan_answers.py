"""A plan as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, SECOND, format_time, moment, to_usd
from spotctl.planning.explain import (
    TrainingMode,
    change_of_pace,
    expected_of,
    launch_moment,
    unnamed_markets,
)
from spotctl.planning.forecast import finish_by, forecast_of
from spotctl.planning.values import (
    CheckpointInterval,
    Choice,
    JobPlan,
    PriceDate,
    QuotaSlice,
    SlicedQuota,
)
from spotctl.run.start.launch_plans import JobPlans
from spotctl.show.columns import Column, as_json
from spotctl.show.freshness import FRESHNESS, fetch_command
from spotctl.show.plans.plan_tables import ZONE, considered_zones

if TYPE_CHECKING:
    from bidbrain.decision.mixture_solver import Schedule
    from bidbrain.strategies.base import Rent
    from spotctl.files.job.spec import JobSpec


CHOICE: tuple[Column[Choice], ...] = (
    Column("market", "the market", lambda choice: str(choice.rent.offer.market)),
    Column("machines", "number of machines", lambda choice: choice.rent.machines),
    Column(
        "bid",
        "bid per machine in dollars per hour; null on demand, and where the cloud has no bids",
        lambda choice: None if choice.rent.bid is None else to_usd(choice.rent.bid),
    ),
    Column(
        "beta",
        "probability that the machines are evicted within the next hour",
        lambda choice: choice.beta.probability,
    ),
    Column(
        "cost_per_work",
        "expected dollars per unit of work; null if no work would be done",
        lambda choice: choice.usd_per_work,
    ),
    Column(
        "price",
        "current price per machine in dollars per hour",
        lambda choice: to_usd(choice.price),
    ),
    Column("beta_low", "lower end of the 95% interval of `beta`", lambda choice: choice.beta.low),
    Column("beta_high", "upper end of the 95% interval of `beta`", lambda choice: choice.beta.high),
    Column(
        "beta_evidence",
        "what the eviction rate rests on; `price` if only the price can evict the machines",
        lambda choice: choice.evidence,
    ),
)


def _if_known(figure: Callable[[JobPlan], Any]) -> Callable[[JobPlan], Any]:
    """The figure of a job; None if its length is unknown. What such a job costs per hour is
    known."""
    return lambda plan: None if plan.demand.work.assumed else figure(plan)


def _budget_kept(plan: JobPlan) -> float | None:
    budget = plan.demand.budget_usd
    return None if budget is None else forecast_of(plan).budget_kept(budget)


def _deadline_met(plan: JobPlan) -> float | None:
    deadline = plan.job.deadline
    return None if deadline is None else forecast_of(plan).deadline_met((deadline - plan.at) / HOUR)


EXPECTED: tuple[Column[JobPlan], ...] = (
    Column(
        "cost_usd",
        "median cost; null if the length of the job is unknown, as for most keys here",
        _if_known(lambda plan: forecast_of(plan).usd.median),
    ),
    Column("hours", "median duration", _if_known(lambda plan: forecast_of(plan).hours.median)),
    Column(
        "finish_by",
        "moment at which the job ends after that duration",
        _if_known(lambda plan: moment(finish_by(plan))),
    ),
    Column(
        "cost_p10_usd",
        "cost that one job in ten stays below",
        _if_known(lambda plan: forecast_of(plan).usd.likely[0]),
    ),
    Column(
        "cost_p90_usd",
        "cost that nine jobs in ten stay below",
        _if_known(lambda plan: forecast_of(plan).usd.likely[1]),
    ),
    Column(
        "cost_percentiles_usd",
        "costs that 0%, 5%, and so on to 100% of jobs stay below",
        _if_known(lambda plan: [forecast_of(plan).usd.quantile(share / 20) for share in range(21)]),
    ),
    Column(
        "hours_p10",
        "duration that one job in ten stays below",
        _if_known(lambda plan: forecast_of(plan).hours.likely[0]),
    ),
    Column(
        "hours_p90",
        "duration that nine jobs in ten stay below",
        _if_known(lambda plan: forecast_of(plan).hours.likely[1]),
    ),
    Column(
        "budget_kept",
        "probability that the job ends before its budget is used up; null without a budget",
        _if_known(_budget_kept),
    ),
    Column(
        "deadline_met",
        "probability that the job ends before its deadline; null without a deadline",
        _if_known(_deadline_met),
    ),
    Column("basis", "what the forecast rests on", lambda plan: forecast_of(plan).basis),
    Column(
        "usd_per_hour", "median cost per hour", lambda plan: forecast_of(plan).usd_per_hour.median
    ),
    Column(
        "usd_per_hour_p10",
        "cost per hour that one job in ten stays below",
        lambda plan: forecast_of(plan).usd_per_hour.likely[0],
    ),
    Column(
        "usd_per_hour_p90",
        "cost per hour that nine jobs in ten stay below",
        lambda plan: forecast_of(plan).usd_per_hour.likely[1],
    ),
    Column(
        "cost_usd_low",
        "the same as `cost_p10_usd`",
        _if_known(lambda plan: forecast_of(plan).usd.likely[0]),
    ),
    Column(
        "cost_usd_high",
        "the same as `cost_p90_usd`",
        _if_known(lambda plan: forecast_of(plan).usd.likely[1]),
    ),
    Column(
        "terms",
        "parts of the median cost, by market",
        lambda plan: () if plan.demand.work.assumed else forecast_of(plan).terms,
        each=(
            Column("market", "the market", lambda term: str(term.market)),
            Column("machines", "most machines held there at a time"),
            Column("cost_usd", "cost there", lambda term: term.usd),
        ),
    ),
)


RELIABLE: tuple[Column[Rent], ...] = (
    Column("market", "their market", lambda rent: str(rent.offer.market)),
    Column("machines", "their number"),
    Column(
        "usd_per_hour", "on-demand price of one of them", lambda rent: to_usd(rent.offer.on_demand)
    ),
)


MixtureOf = tuple[JobPlan, "Schedule"]
"""A plan, and the mixture that the job begins with."""


def _phases(mixed: MixtureOf) -> Iterator[tuple[str, float, Mapping[str, int]]]:
    """The begin, the hours and the machines of each phase."""
    plan, mixture = mixed
    begins = accumulate((phase.hours for phase in mixture.phases), initial=0.0)
    for phase, begin in zip(mixture.phases, begins, strict=False):
        counts = zip(plan.decision.types, phase.mixture.machines, strict=True)
        machines = {name: count for name, count in counts if count}
        yield moment(plan.at + round(begin * HOUR)), phase.hours, machines


MIXTURE: tuple[Column[MixtureOf], ...] = (
    Column(
        "aim",
        "what the mixture was chosen for: least cost, shortest time within the budget, or most "
        "work per hour",
        lambda mixed: str(mixed[0].demand.aim),
    ),
    Column(
        "cost_usd",
        "expected cost; null if the length of the job is unknown",
        lambda mixed: mixed[1].usd if isfinite(mixed[1].hours) else None,
    ),
    Column(
        "hours",
        "expected duration; null if the length of the job is unknown",
        lambda mixed: mixed[1].hours,
    ),
    Column(
        "phases",
        "the mixtures that are held one after another",
        _phases,
        each=(
            Column(
                "begins", "moment at which it begins, if nothing is evicted", lambda phase: phase[0]
            ),
            Column("hours", "how long it is held", lambda phase: phase[1]),
            Column(
                "machines",
                "number of machines by type",
                lambda phase: phase[2],
                named="number of machines of this type",
            ),
        ),
    ),
)


def _turn_moment(at: int, hours: float) -> str | None:
    return moment(at + round(hours * HOUR)) if isfinite(hours) else None


def _bounds(at: int, bounds: tuple[float, float] | None) -> list[str | None] | None:
    return None if bounds is None else [_turn_moment(at, hours) for hours in bounds]


SLICE: tuple[Column[QuotaSlice], ...] = (
    Column("job", "name of the job"),
    Column("amount", "its part when its turn begins"),
    Column(
        "begins",
        "expected begin of its turn; null if it needs none of the quota",
        value_at=lambda part, at: _turn_moment(at, part.turn.begin),
    ),
    Column(
        "ends",
        "expected end of its turn; null if that is unknown",
        value_at=lambda part, at: _turn_moment(at, part.turn.end),
    ),
    Column(
        "begins_between",
        "earliest and latest begin of its turn, null where there is no limit; null if no unknown "
        "length decides it",
        value_at=lambda part, at: _bounds(at, part.turn.begins),
    ),
    Column(
        "ends_between",
        "earliest and latest end of its turn, null where there is no limit; null if no unknown "
        "length decides it",
        value_at=lambda part, at: _bounds(at, part.turn.ends),
    ),
    Column(
        "changes",
        "moments at which its part is to become another amount, and that amount",
        value_at=lambda part, at: [
            [_turn_moment(at, begin), amount] for begin, amount in part.later
        ],
    ),
)
QUOTA: tuple[Column[SlicedQuota], ...] = (
    Column("quota", "name of the quota", lambda share: share.quota.name),
    Column("unit", "what it counts", lambda share: str(share.quota.unit)),
    Column("amount", "its limit", lambda share: share.quota.amount),
    Column("part", "the job's part of it", lambda share: share.slice.amount),
    Column(
        "parts",
        "parts of all jobs that are planned together, the first turn first",
        lambda share: share.slices,
        each=SLICE,
    ),
)
CHECKPOINTS: tuple[Column[CheckpointInterval], ...] = (
    Column(
        "every_seconds", "time between two checkpoints", lambda interval: interval.every / SECOND
    ),
    Column("cost_seconds", "time that saving one takes", lambda interval: interval.cost / SECOND),
    Column(
        "mean_life_seconds",
        "mean time until a machine is evicted; null on demand",
        lambda interval: interval.life / SECOND,
    ),
)
PRICE: tuple[Column[PriceDate], ...] = (
    Column("market", "the market", lambda price: str(price.market)),
    Column("purchase", "spot or on-demand", lambda price: "spot" if price.spot else "on-demand"),
    Column("usd_per_hour", "dollars per machine and hour", lambda price: to_usd(price.price)),
    Column(
        "as_of",
        "moment at which it was last known to hold, or the date of the list that it is from",
        lambda price: format_time(price.as_of),
    ),
    Column("source", "where it is from"),
)
PLAN: tuple[Column[JobPlan], ...] = (
    Column("job", "name of the job", lambda plan: plan.job.spec.name),
    Column(
        "choice",
        "allocations that would be rented now; several if the work is spread over markets",
        lambda plan: plan.cost.choice,
        each=CHOICE,
    ),
    Column("expected", "forecast of the whole job", lambda plan: plan, of=EXPECTED),
    Column(
        "on_demand_usd",
        "cost of the same work on the cheapest on-demand machines that are as fast; if the length "
        "of the job is"
        " unknown, of what the plan does in an hour",
        lambda plan: plan.cost.on_demand.usd,
    ),
    Column(
        "rejected",
        "other markets that were considered",
        lambda plan: [(str(lost.market), plan.demand.worded(lost.why)) for lost in plan.rejected],
        each=(
            Column("market", "the market", lambda lost: lost[0]),
            Column("why", "why it is not used", lambda lost: lost[1]),
        ),
    ),
    Column(
        "rejected_unnamed",
        "number of further markets that were rejected and are not listed",
        unnamed_markets,
    ),
    Column("zones", "markets between which the job may move", considered_zones, each=ZONE),
    Column(
        "at", "moment at which the plan was made", lambda plan: format_time(launch_moment(plan))
    ),
    Column(
        "begins",
        "moment at which the job's turn is to begin: later than `at` if it waits for quotas that "
        "other jobs use first",
        lambda plan: moment(plan.at),
    ),
    Column(
        "policy",
        "objective that all jobs are planned with: min-cost is min-cost-slo if one of them has a "
        "deadline",
        lambda plan: plan.share.policy,
    ),
    Column(
        "strategy", "strategy that decides what to rent", lambda plan: plan.decision.strategy.name
    ),
    Column("reason", "why it decided so", lambda plan: plan.demand.worded(plan.decision.reason)),
    Column(
        "reliable",
        "reliable machines of a training, rented on demand; null if it has none",
        lambda plan: plan.decider.reliable,
        of=RELIABLE,
    ),
    Column(
        "reliable_reason",
        "why the plan has a reliable machine or none; empty where the job file decides",
    ),
    Column(
        "mixture",
        "mixture of machine types, if the job asks for one",
        lambda plan: None if plan.decision.mixture is None else (plan, plan.decision.mixture),
        of=MIXTURE,
    ),
    Column(
        "quotas",
        "quotas of the cloud that limit the job",
        lambda plan: plan.share.quotas,
        each=QUOTA,
    ),
    Column(
        "checkpoints",
        "checkpoints of a command; null if it keeps none",
        lambda plan: plan.decision.checkpoints,
        of=CHECKPOINTS,
    ),
    Column(
        "work",
        "how much work the job is",
        lambda plan: plan.demand.work,
        of=(
            Column("source", "where that is known from"),
            Column("assumed", "whether the amount was assumed because nothing states it"),
        ),
    ),
    Column(
        "prices", "prices that the plan rests on", lambda plan: plan.cost.price_dates, each=PRICE
    ),
    Column(
        "throughputs",
        "throughput of each machine type",
        lambda plan: plan.fleet.rates,
        named=Column(
            "throughput",
            "one machine type",
            of=(
                Column(
                    "per_hour", "units of work that one machine does per hour", lambda rate: rate.nu
                ),
                Column("source", "where that is known from"),
            ),
        ),
    ),
)


def _expected(figure: int) -> Callable[[TrainingMode], float | None]:
    """A column's function: one expected figure of a training mode; None if the mode has no plan."""
    return lambda way: None if (figures := expected_of(way)) is None else figures[figure]


PACE: tuple[Column[tuple[JobPlan, JobPlan]], ...] = (
    Column(
        "value_of_time_usd",
        "the `value_of_time` that leads there, per hour",
        lambda pair: pair[1].demand.value_of_time_usd,
    ),
    Column(
        "cost_change",
        "change of the median cost, as a share of it",
        lambda pair: change_of_pace(*pair)[0],
    ),
    Column(
        "hours_change",
        "change of the median duration, as a share of it",
        lambda pair: change_of_pace(*pair)[1],
    ),
)
MODE: tuple[Column[TrainingMode], ...] = (
    Column(
        "way",
        "script, trainer with a reliable machine, or trainer without one",
        lambda way: way.name,
    ),
    Column("chosen", "whether it is the plan", lambda way: way.is_chosen),
    Column("cost_usd", "median cost; null without such a plan, as for the next keys", _expected(0)),
    Column("cost_p10_usd", "cost that one job in ten stays below", _expected(1)),
    Column("cost_p90_usd", "cost that nine jobs in ten stay below", _expected(2)),
    Column("hours", "median duration", _expected(3)),
)
REASONS: tuple[Column[JobPlans], ...] = (
    Column(
        "pace",
        "next points on the frontier of cost and time; empty without `--explain`, and for jobs "
        "planned together",
        lambda planned: [(planned.plans[0], other) for other in planned.pace],
        each=PACE,
    ),
    Column(
        "ways",
        "the training as a script, and as a trainer with and without a reliable machine; empty "
        "without `--explain`,"
        " for jobs planned together, and for a job that is no training or of unknown length",
        lambda planned: planned.modes,
        each=MODE,
    ),
    Column(
        "policies",
        "what policies would make of jobs that share quotas, that of the queue first; empty "
        "without `--explain`, and"
        " where quotas hold all jobs",
        lambda planned: list(planned.mean_ends.items()),
        each=(
            Column("policy", "its name", lambda pair: pair[0]),
            Column("mean_hours", "mean time until jobs of known lengths end", lambda pair: pair[1]),
        ),
    ),
)
CLUSTER: Column[JobSpec] = Column(
    "cluster",
    "Ray cluster on which a job trains that rents nothing; its plan has few other keys",
    of=(
        Column("engine", "`ray`"),
        Column(
            "address",
            "address of the cluster; empty for that of RAY_ADDRESS, or one on this computer",
        ),
        Column("reliable", "number of reliable nodes"),
        Column("transient", "number of other nodes"),
    ),
)
ON_RAY: tuple[Column[JobSpec], ...] = (
    Column("job", "name of the job", lambda spec: spec.name),
    CLUSTER,
    Column("choice", "empty, because nothing is rented", lambda _: []),
    Column(
        "expected",
        "forecast of the job",
        lambda _: {"cost_usd": 0.0},
        of=(Column("cost_usd", "0"),),
    ),
)
ANSWER: tuple[Column[Any], ...] = (*PLAN, CLUSTER, *FRESHNESS, *REASONS)
"""The JSON of `spotctl plan`."""


def answers(planned: JobPlans) -> list[dict[str, Any]]:
    """Jobs that were planned together, with how current the prices of their clouds are."""
    fetch = fetch_command(planned.clouds, planned.at)
    freshness = as_json(FRESHNESS, {"clouds": planned.clouds, "fetch": fetch}, planned.at)
    return [
        {**as_json(PLAN, plan, launch_moment(plan)), **freshness, **as_json(REASONS, planned)}
        for plan in planned.plans
    ]


def answer(spec: JobSpec) -> dict[str, Any]:
    """The plan of a job on Ray: no machine is chosen, and the job costs nothing."""
    return as_json(ON_RAY, spec)


def plan_text(spec: JobSpec) -> str:
    """The plan of a job on Ray in a line."""
    return (
        f"{spec.name}: trains on {nodes_text(spec.cluster)}; nothing is rented, so it adds no cost"
    )


def nodes_text(cluster: Mapping[str, Any]) -> str:
    """`1 reliable + 3 transient nodes of the Ray cluster at 10.0.0.4:6379`."""
    address = cluster["address"]
    where = (
        f"the Ray cluster at {address}"
        if address
        else "the Ray cluster of RAY_ADDRESS, or one on this computer"
    )
    return f"{cluster['reliable']} reliable + {cluster['transient']} transient nodes of {where}"
