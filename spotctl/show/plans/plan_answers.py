"""A plan as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, SECOND, counted, format_time, moment, to_usd
from spotctl.home.cloud import cloud_of
from spotctl.planning.explain import (
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
    SlicedQuota,
)
from spotctl.run.start.launch_plans import JobPlans, NeededAccount
from spotctl.show.columns import Column, as_json, texts
from spotctl.show.plans.plan_tables import ZONE, considered_zones
from spotctl.show.terminal import FRESHNESS, fetch_command

if TYPE_CHECKING:
    from bidbrain.strategies.base import Rent
    from spotctl.agent.container.named_packages import NamedPackages
    from spotctl.files.job.spec import JobSpec


CHOICE: tuple[Column[Choice], ...] = (
    Column("market", "the market", "rent.offer.market", form=str),
    Column("machines", "number of machines", "rent.machines"),
    Column(
        "bid",
        "bid per machine in dollars per hour; null on demand, and where the cloud has no bids",
        "rent.bid",
        form=to_usd,
    ),
    Column(
        "beta",
        "probability that the machines are evicted within the next hour",
        "beta.probability",
    ),
    Column(
        "cost_per_work",
        "expected dollars per unit of work; null if no work would be done",
        "usd_per_work",
    ),
    Column(
        "price",
        "current price per machine in dollars per hour",
        form=to_usd,
    ),
    Column("beta_low", "lower end of the 95% interval of `beta`", "beta.low"),
    Column("beta_high", "upper end of the 95% interval of `beta`", "beta.high"),
    Column(
        "beta_evidence",
        "what the eviction rate rests on; `price` if only the price can evict the machines",
        "evidence",
    ),
)


_UNKNOWN_LENGTH = {
    **dict.fromkeys(
        (
            "usd",
            "hours",
            "finish_by",
            "percentiles",
            "budget_kept",
            "budget_kept_least",
            "deadline_met",
            "deadline_met_least",
        ),
        None,
    ),
    "terms": (),
}


def _expected(plan: JobPlan) -> dict[str, Any]:
    """The forecast of a plan: a row of `EXPECTED`. A job of unknown length has no figures of
    the whole job, but what it costs per hour is known."""
    forecast = forecast_of(plan)
    rates = {"basis": forecast.basis, "usd_per_hour": forecast.usd_per_hour}
    if plan.demand.work.assumed:
        return {**_UNKNOWN_LENGTH, **rates}

    budget, deadline = plan.budget_usd, plan.job.deadline
    odds = dict[str, float]()
    if budget is not None:
        odds["budget_kept"] = forecast.budget_kept(budget)
        odds["budget_kept_least"] = forecast.usd.at_most_between(budget)[0]
    # A plan that waits ends by a moment of its own, which is no deadline of the job.
    if deadline is not None and plan.job.spec.deadline is not None:
        left = (deadline - plan.at) / HOUR
        odds["deadline_met"] = forecast.deadline_met(left)
        odds["deadline_met_least"] = forecast.hours.at_most_between(left)[0]

    return {
        **_UNKNOWN_LENGTH,
        **rates,
        **odds,
        "usd": forecast.usd,
        "hours": forecast.hours,
        "finish_by": finish_by(plan),
        "percentiles": [forecast.usd.quantile(share / 20) for share in range(21)],
        "terms": forecast.terms,
    }


EXPECTED: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "cost_usd",
        "median cost; null if the length of the job is unknown, as for most keys here",
        "usd.median",
    ),
    Column("hours", "median duration", "hours.median"),
    Column("finish_by", "moment at which the job ends after that duration", form=moment),
    Column("cost_p10_usd", "cost that one job in ten stays below", "usd.likely.0"),
    Column("cost_p90_usd", "cost that nine jobs in ten stay below", "usd.likely.1"),
    Column(
        "cost_percentiles_usd",
        "costs that 0%, 5%, and so on to 100% of jobs stay below",
        "percentiles",
    ),
    Column("hours_p10", "duration that one job in ten stays below", "hours.likely.0"),
    Column("hours_p90", "duration that nine jobs in ten stay below", "hours.likely.1"),
    Column(
        "budget_kept",
        "probability that the job ends before its budget is used up; null without a budget",
    ),
    Column(
        "budget_kept_least",
        "that probability if all that the past does not show went wrong",
    ),
    Column(
        "deadline_met",
        "probability that the job ends before its deadline; null without a deadline",
    ),
    Column(
        "deadline_met_least",
        "that probability if all that the past does not show went wrong",
    ),
    Column("basis", "what the forecast rests on"),
    Column("usd_per_hour", "median cost per hour", "usd_per_hour.median"),
    Column(
        "usd_per_hour_p10",
        "cost per hour that one job in ten stays below",
        "usd_per_hour.likely.0",
    ),
    Column(
        "usd_per_hour_p90",
        "cost per hour that nine jobs in ten stay below",
        "usd_per_hour.likely.1",
    ),
    Column("cost_usd_low", "the same as `cost_p10_usd`", "usd.likely.0"),
    Column("cost_usd_high", "the same as `cost_p90_usd`", "usd.likely.1"),
    Column(
        "terms",
        "parts of the median cost, by market",
        each=(
            Column("market", "the market", form=str),
            Column("machines", "most machines held there at a time"),
            Column("cost_usd", "cost there", "usd"),
        ),
    ),
)


RELIABLE: tuple[Column[Rent], ...] = (
    Column("market", "their market", "offer.market", form=str),
    Column("machines", "their number"),
    Column("usd_per_hour", "on-demand price of one of them", "offer.on_demand", form=to_usd),
)


def _mixture(plan: JobPlan) -> dict[str, Any] | None:
    """The mixture that a plan's job begins with: a row of `MIXTURE`; None without one."""
    mixture = plan.decision.mixture
    if mixture is None:
        return None

    phases, begins = [], 0.0
    for phase in mixture.phases:
        counts = zip(plan.decision.types, phase.mixture.machines, strict=True)
        machines = {name: count for name, count in counts if count}
        phases.append({"at": plan.at + round(begins * HOUR), "held": phase, "machines": machines})
        begins += phase.hours

    return {
        "aim": plan.demand.aim,
        "cost_usd": mixture.usd if isfinite(mixture.hours) else None,
        "hours": mixture.hours,
        "phases": phases,
    }


MIXTURE: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "aim",
        "what the mixture was chosen for: least cost, shortest time within the budget, or most "
        "work per hour",
        form=str,
    ),
    Column("cost_usd", "expected cost; null if the length of the job is unknown"),
    Column("hours", "expected duration; null if the length of the job is unknown"),
    Column(
        "phases",
        "the mixtures that are held one after another",
        each=(
            Column("begins", "moment at which it begins, if nothing is evicted", "at", form=moment),
            Column("hours", "how long it is held", "held.hours"),
            Column(
                "machines",
                "number of machines by type",
                named="number of machines of this type",
            ),
        ),
    ),
)


def _turns(share: SlicedQuota, at: int) -> list[dict[str, Any]]:
    """The parts of a quota, with the turn of each job as moments: rows of `SLICE`. What has no
    limit is None; `at` is the moment from which hours count."""

    def moment_after(hours: float) -> str | None:
        if isfinite(hours):
            return moment(at + round(hours * HOUR))
        return None

    rows = []
    for part in share.slices:
        turn = part.turn
        row = {"job": part.job, "amount": part.amount}
        row |= {"begins": moment_after(turn.begin), "ends": moment_after(turn.end)}
        for key, bounds in (("begins_between", turn.begins), ("ends_between", turn.ends)):
            row[key] = None if bounds is None else [moment_after(hours) for hours in bounds]
        row["changes"] = [[moment_after(begin), amount] for begin, amount in part.later]
        rows.append(row)

    return rows


SLICE: tuple[Column[Mapping[str, Any]], ...] = (
    Column("job", "name of the job"),
    Column("amount", "its part when its turn begins"),
    Column("begins", "expected begin of its turn; null if it needs none of the quota"),
    Column("ends", "expected end of its turn; null if that is unknown"),
    Column(
        "begins_between",
        "earliest and latest begin of its turn, null where there is no limit; null if no unknown "
        "length decides it",
    ),
    Column(
        "ends_between",
        "earliest and latest end of its turn, null where there is no limit; null if no unknown "
        "length decides it",
    ),
    Column(
        "changes",
        "moments at which its part is to become another amount, and that amount",
    ),
)
QUOTA: tuple[Column[SlicedQuota], ...] = (
    Column("quota", "name of the quota", "quota.name"),
    Column("unit", "what it counts", "quota.unit", form=str),
    Column("amount", "its limit", "quota.amount"),
    Column("part", "the job's part of it", "slice.amount"),
    Column(
        "parts",
        "parts of all jobs that are planned together, the first turn first",
        value_at=_turns,
        each=SLICE,
    ),
)
CHECKPOINTS: tuple[Column[CheckpointInterval], ...] = (
    Column("every_seconds", "time between two checkpoints", "every", per=SECOND),
    Column("cost_seconds", "time that saving one takes", "cost", per=SECOND),
    Column(
        "mean_life_seconds",
        "mean time until a machine is evicted; null on demand",
        "life",
        per=SECOND,
    ),
)
ENVIRONMENT: tuple[Column[NamedPackages], ...] = (
    Column("kind", "requirements, lock, pyproject, conda, or python without a file"),
    Column("file", "the file in the job's folder that names them"),
    Column("python", "the version of Python that is asked for; empty for the machine's own"),
    Column("kept", "where what was built is kept for the next machine; empty if nowhere", "store"),
)
PRICE: tuple[Column[PriceDate], ...] = (
    Column("market", "the market", form=str),
    Column("purchase", "spot or on-demand", lambda price: "spot" if price.spot else "on-demand"),
    Column("usd_per_hour", "dollars per machine and hour", "price", form=to_usd),
    Column(
        "as_of",
        "moment at which it was last known to hold, or the date of the list that it is from",
        form=format_time,
    ),
    Column("source", "where it is from"),
)
PLAN: tuple[Column[JobPlan], ...] = (
    Column("job", "name of the job", "job.spec.name"),
    Column(
        "choice",
        "allocations that would be rented now; several if the work is spread over markets",
        "cost.choice",
        each=CHOICE,
    ),
    Column("expected", "forecast of the whole job", _expected, of=EXPECTED),
    Column(
        "on_demand_usd",
        "cost of the same work on the cheapest on-demand machines that are as fast; if the length "
        "of the job is unknown, of what the plan does in an hour",
        "cost.on_demand.usd",
    ),
    Column(
        "traffic_usd",
        "what the hosts of the first machines usually ask for the bytes of checkpoints, on top of "
        "the forecast; 0 where nothing is known of their size",
        "cost.traffic_usd",
    ),
    Column(
        "rejected",
        "other markets that were considered",
        lambda plan: [(str(lost.market), plan.demand.worded(lost.why)) for lost in plan.rejected],
        each=(
            Column("market", "the market", "0"),
            Column("why", "why it is not used", "1"),
        ),
    ),
    Column(
        "rejected_unnamed",
        "number of further markets that were rejected and are not listed",
        unnamed_markets,
    ),
    Column("zones", "markets between which the job may move", considered_zones, each=ZONE),
    Column("at", "moment at which the plan was made", launch_moment, form=format_time),
    Column(
        "begins",
        "moment at which the job's turn is to begin: later than `at` if it waits for quotas that "
        "other jobs use first",
        "at",
        form=moment,
    ),
    Column(
        "policy",
        "objective that all jobs are planned with: min-cost is min-cost-slo if one of them has a "
        "deadline",
        "share.policy",
    ),
    Column("strategy", "strategy that decides what to rent", "decision.strategy.name"),
    Column("reason", "why it decided so", lambda plan: plan.demand.worded(plan.decision.reason)),
    Column(
        "reliable",
        "reliable machines of a training, rented on demand; null if it has none",
        "decider.reliable",
        of=RELIABLE,
    ),
    Column(
        "reliable_reason",
        "why the plan has a reliable machine or none; empty where the job file decides",
    ),
    Column(
        "mixture",
        "mixture of machine types, if the job asks for one",
        _mixture,
        of=MIXTURE,
    ),
    Column(
        "quotas",
        "quotas of the cloud that limit the job",
        "share.quotas",
        each=QUOTA,
    ),
    Column(
        "checkpoints",
        "checkpoints of a command; null if it keeps none",
        "decision.checkpoints",
        of=CHECKPOINTS,
    ),
    Column(
        "work",
        "how much work the job is",
        "demand.work",
        of=(
            Column("source", "where that is known from"),
            Column("assumed", "whether the amount was assumed because nothing states it"),
        ),
    ),
    Column(
        "environment",
        "the packages of a command's own environment; null if it runs with what machines have",
        "job.spec.environment",
        of=ENVIRONMENT,
    ),
    Column("prices", "prices that the plan rests on", "cost.price_dates", each=PRICE),
    Column(
        "throughputs",
        "throughput of each machine type",
        "fleet.rates",
        named=Column(
            "throughput",
            "one machine type",
            of=(
                Column("per_hour", "units of work that one machine does per hour", "nu"),
                Column("source", "where that is known from"),
            ),
        ),
    ),
)


PACE: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "value_of_time_usd",
        "the `value_of_time` that leads there, per hour",
        "plan.demand.value_of_time_usd",
    ),
    Column("cost_change", "change of the median cost, as a share of it", "change.0"),
    Column("hours_change", "change of the median duration, as a share of it", "change.1"),
)
MODE: tuple[Column[Mapping[str, Any]], ...] = (
    Column("way", "script, trainer with a reliable machine, or trainer without one", "mode.name"),
    Column("chosen", "whether it is the plan", "mode.is_chosen"),
    Column("cost_usd", "median cost; null without such a plan, as for the next keys", "figures.0"),
    Column("cost_p10_usd", "cost that one job in ten stays below", "figures.1"),
    Column("cost_p90_usd", "cost that nine jobs in ten stay below", "figures.2"),
    Column("hours", "median duration", "figures.3"),
)


REASONS: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "pace",
        "next points on the frontier of cost and time; empty without `--explain`, and for jobs "
        "planned together",
        each=PACE,
    ),
    Column(
        "ways",
        "the training as a script, and as a trainer with and without a reliable machine; empty "
        "without `--explain`,"
        " for jobs planned together, and for a job that is no training or of unknown length",
        each=MODE,
    ),
    Column(
        "policies",
        "what policies would make of jobs that share quotas, that of the queue first; empty "
        "without `--explain`, and where quotas hold all jobs",
        each=(
            Column("policy", "its name", "0"),
            Column("mean_hours", "mean time until jobs of known lengths end", "1"),
        ),
    ),
    Column(
        "left_out",
        "offers of hosts in the markets of the jobs that the last fetch left out, the most frequent "
        "reason first; empty without `--explain`",
        each=(
            Column("cloud", "the cloud", "0"),
            Column("why", "what the hosts have", "1"),
            Column("hosts", "number of offers", "2"),
        ),
    ),
)
ACCOUNTS: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "accounts",
        "accounts that the offers of the plan need",
        each=(
            Column("cloud", "the cloud"),
            Column("set_up", "whether it is set up on this computer", "is_set_up"),
            Column("setup", "how to set it up on this computer"),
            Column("guide", "page with what to do once per account"),
            Column("markets", "the offers, the planned ones first", form=texts),
        ),
    ),
)
CLUSTER: Column[Mapping[str, Any]] = Column(
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
ON_RAY: tuple[Column[Mapping[str, Any]], ...] = (
    Column("job", "name of the job"),
    CLUSTER,
    Column("choice", "empty, because nothing is rented"),
    Column("expected", "forecast of the job", of=(Column("cost_usd", "0"),)),
)
ANSWER: tuple[Column[Any], ...] = (*PLAN, CLUSTER, *FRESHNESS, *ACCOUNTS, *REASONS)
"""The JSON of `spotctl plan`."""


def answers(planned: JobPlans) -> list[dict[str, Any]]:
    """Jobs that were planned together, with how current the prices of their clouds are."""
    fetch = fetch_command(planned.clouds, planned.at)
    freshness = as_json(FRESHNESS, {"clouds": planned.clouds, "fetch": fetch}, planned.at)
    accounts = as_json(ACCOUNTS, {"accounts": planned.accounts})
    plan = planned.plans[0]
    pace = [{"plan": other, "change": change_of_pace(plan, other)} for other in planned.pace]
    ways = [{"mode": mode, "figures": expected_of(mode)} for mode in planned.modes]
    policies = list(planned.mean_ends.items())
    unfit = [(cloud, why, hosts) for (cloud, why), hosts in planned.left_out.items()]
    shown = {"pace": pace, "ways": ways, "policies": policies, "left_out": unfit}
    reasons = as_json(REASONS, shown)
    return [
        {**as_json(PLAN, plan, launch_moment(plan)), **freshness, **accounts, **reasons}
        for plan in planned.plans
    ]


def account_remarks(accounts: Iterable[NeededAccount]) -> list[str]:
    """A line for each account that is not set up on this computer."""
    remarks = []
    for account in accounts:
        if not account.is_set_up:
            first, others = account.markets[0], len(account.markets) - 1
            offers = f"{first} and {counted(others, 'more offer')}" if others else str(first)
            title = cloud_of(account.cloud).words.title
            remarks.append(
                f"needs an account of {title}: {offers}; to launch there, {account.setup} "
                f"(once per account: {account.guide})"
            )
    return remarks


def answer(spec: JobSpec) -> dict[str, Any]:
    """The plan of a job on Ray: no machine is chosen, and the job costs nothing."""
    row = {"job": spec.name, "cluster": spec.cluster, "choice": [], "expected": {"cost_usd": 0.0}}
    return as_json(ON_RAY, row)


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
