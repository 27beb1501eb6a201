"""Plans of jobs: from what is stored, before a launch also with the quotas that their clouds state,
and of a run from its log. All go one way, and differ only in the facts."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter

from bidbrain.eviction.hazard import family_of
from pricing_data.library import CloudPrices, freshness_of
from pricing_data.market import Market
from pricing_data.units import HOUR, parse_duration, parse_time
from spotctl.clouds.errors import NotPermitted
from spotctl.clouds.wiring import cloud_provider, said_of_hosts
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import ANY, JobSpec, check_planned_together
from spotctl.files.job.values import WorkTime
from spotctl.home import account_quotas
from spotctl.home.cloud import cloud_of, is_replayed
from spotctl.home.config import Settings, is_traced
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import quotas_from
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RunBegan
from spotctl.planning.candidates import check_hours
from spotctl.planning.explain import TrainingMode, mean_ends, other_paces, training_modes
from spotctl.planning.forecast import forecast_of
from spotctl.planning.offers import has_public_zone
from spotctl.planning.plan import plan_jobs
from spotctl.planning.quotas import on_demand_remarks
from spotctl.planning.values import JobPlan
from spotctl.run.start.stored_facts import LoggedTerms, read_facts


@dataclass(frozen=True, slots=True)
class NeededAccount:
    """The account that offers of a plan need, the planned ones first; `setup` and `guide` say how
    to set it up on this computer, where it `is_set_up` or not."""

    cloud: str
    is_set_up: bool
    setup: str
    guide: str
    markets: tuple[Market, ...]


@dataclass(frozen=True, slots=True)
class JobPlans:
    """The plans of some jobs, remarks on the data they rest on, how current the prices of rented
    clouds were, and the accounts that their offers need.

    If they were asked for, `pace` has the plans of a job that is planned alone at the next points
    of cost and time, `modes` the ways to run it, `mean_ends` what policies would make of jobs that
    share quotas, and `left_out` the hosts in the markets of the jobs that fetches left out, by cloud
    and reason.
    """

    plans: Sequence[JobPlan] = ()
    remarks: tuple[str, ...] = ()
    clouds: tuple[CloudPrices, ...] = ()
    accounts: tuple[NeededAccount, ...] = ()
    at: int = 0
    pace: tuple[JobPlan, ...] = ()
    modes: tuple[TrainingMode, ...] = ()
    mean_ends: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[tuple[str, str], int] = field(default_factory=dict)


def stored_plans(
    specs: Sequence[JobSpec], settings: Settings, at: str = "", hours: str = ""
) -> JobPlans:
    """Plans jobs together, from what is stored. `at` replaces the present moment; `hours` is the
    length to assume for the jobs, in the form of job files."""
    check_planned_together(specs)
    moment = parse_time(at) if at else None
    length = None
    if hours:
        span, _, machine = hours.partition(" on ")
        work = WorkTime(parse_duration(span), machine.strip() or None)
        length = work.span / HOUR
        specs = [replace(spec, hours=work) for spec in specs]
    now = wall_us() if moment is None else moment
    planned = _plans(specs, settings, now, moment=moment, hours=length)
    for plan in planned.plans:
        check_hours(plan)
    return planned


def explained(planned: JobPlans, settings: Settings, at: str = "", hours: str = "") -> JobPlans:
    """The plans with what other policies of their queue would do, that of one job also with the
    next points of its cost and time, and the ways to run it, and what fetches left out."""
    all_asked = [plan.job.spec.resources for plan in planned.plans]
    clouds = {cloud for asked in all_asked for cloud in asked.clouds}
    known = said_of_hosts("left_out", settings, clouds, planned.at)
    hosts = Counter[tuple[str, str]]()
    for market, reasons in known.items():
        if any(
            market.cloud in asked.clouds
            and (market.region in asked.regions or asked.regions in ((), (ANY,)))
            and (
                not asked.types or any(fnmatchcase(market.instance_type, at) for at in asked.types)
            )
            for asked in all_asked
        ):
            hosts.update({(market.cloud, why): number for why, number in reasons.items()})
    planned = replace(
        planned, mean_ends=mean_ends(planned.plans[0]), left_out=dict(hosts.most_common())
    )
    if len(planned.plans) != 1:
        return planned

    def plan_of(spec: JobSpec) -> JobPlan | None:
        try:
            return stored_plans([spec], settings, at, hours).plans[0]
        except SpotctlError:
            return None

    (plan,) = planned.plans
    return replace(
        planned, pace=tuple(other_paces(plan, plan_of)), modes=tuple(training_modes(plan, plan_of))
    )


def plan_of_run(
    began: RunBegan,
    settings: Settings,
    started: int,
    quotas: str | None = None,
    place: tuple[str, str] | None = None,
) -> JobPlan:
    """The plan of a run: every process that works on the run makes the same plan.

    `quotas` are the parts that the run may use, if they differ from its first ones; machines then
    stay in `place`.
    """
    parts = quotas_from(began.quotas if quotas is None else quotas)
    terms = LoggedTerms(began.wall_us, started, began.deadline, parts, place)
    (plan,) = _plans([restored(began.spec, settings.home)], settings, began.wall_us, terms).plans
    return plan


def _plans(
    specs: Sequence[JobSpec],
    settings: Settings,
    at: int,
    terms: LoggedTerms | None = None,
    moment: int | None = None,
    hours: float | None = None,
) -> JobPlans:
    facts = read_facts(specs, settings, terms, moment, hours)
    plans = plan_jobs(facts)
    account = facts.account
    catalog = facts.snapshot.catalog
    lacking = on_demand_remarks(
        plans, account.on_demand, list(account.on_demand_held.values()), catalog
    )
    asked = dict.fromkeys(
        cloud for spec in specs for cloud in spec.resources.clouds if not is_replayed(cloud)
    )

    return JobPlans(
        plans,
        facts.remarks + lacking,
        tuple(freshness_of(facts.snapshot.table, asked)),
        tuple(_accounts(plans, settings)),
        at,
    )


def _accounts(plans: Sequence[JobPlan], settings: Settings) -> Iterator[NeededAccount]:
    """The account of each cloud that has an offer."""
    markets = dict[str, dict[Market, None]]()
    for plan in plans:
        rents = [choice.rent for choice in plan.cost.choice] + [plan.cost.on_demand.rent]
        offers = [rent.offer.market for rent in rents] + [other.market for other in plan.rejected]
        for market in offers:
            markets.setdefault(market.cloud, {})[market] = None

    for cloud, offered in markets.items():
        account = cloud_of(cloud).account
        if account is not None:
            is_set_up = is_traced(settings, account)
            yield NeededAccount(cloud, is_set_up, account.setup, account.guide, tuple(offered))


def plans_to_launch(
    specs: Sequence[JobSpec], settings: Settings, max_cost: int | None = None
) -> JobPlans:
    """Plans jobs within the quotas that their clouds state now.

    `max_cost` limits the jobs together: each gets a share in proportion to its cost without the
    limit.
    """
    if max_cost is None:
        return _within_account(specs, settings)

    shares = [max_cost]
    if len(specs) > 1:
        shares = _shares(max_cost, _within_account(specs, settings))
    limited = [
        replace(spec, budget=share if spec.budget is None else min(spec.budget, share))
        for spec, share in zip(specs, shares, strict=True)
    ]
    return _within_account(limited, settings)


def _shares(max_cost: int, unlimited: JobPlans) -> list[int]:
    """Each job's part of the dollars for all, in proportion to what it would cost."""
    costs = [forecast_of(plan).usd.median for plan in unlimited.plans]
    if not any(costs):
        return [max_cost // len(costs)] * len(costs)
    return [int(max_cost * cost / sum(costs)) for cost in costs]


def _within_account(specs: Sequence[JobSpec], settings: Settings) -> JobPlans:
    """The plans, made again until no quota of a planned market is left to ask for."""
    asked: set[Market] = set()
    while True:
        plans = stored_plans(specs, settings)
        markets = set[Market]()
        for plan in plans.plans:
            if not plan.job.spec.is_local:
                # Where the plan rents, or may rent on demand.
                rents = [
                    plan.decider.baseline,
                    plan.decider.reliable,
                    *(choice.rent for choice in plan.cost.choice),
                ]
                markets |= {rent.offer.market for rent in rents if rent is not None}
        _refuse_public_zones(plans, markets)
        unasked = unknown_quotas(markets, settings) - asked
        if not unasked:
            return plans
        asked |= unasked
        places = groupby(sorted(unasked, key=str), key=attrgetter("cloud", "region"))
        for (cloud, region), there in places:
            # A quota that cannot be read stays unknown: the cloud decides at the purchase.
            provider = cloud_provider(settings, [cloud], [region])
            with closing(provider), suppress(SpotctlError):
                if stated := provider.quotas(region, {market.instance_type for market in there}):
                    account_quotas.keep(settings, stated, wall_us())


def _refuse_public_zones(plans: JobPlans, markets: Collection[Market]) -> None:
    """Raises NotPermitted if jobs would rent where prices are known of a public list only, which
    names zones otherwise than the account does."""
    public = sorted((market for market in markets if has_public_zone(market)), key=str)
    accounts = {account.cloud: account for account in plans.accounts}
    if not public:
        return

    cloud, account = public[0].cloud, accounts[public[0].cloud]
    first = "" if account.is_set_up else f"set up the account ({account.setup}; {account.guide}), "
    raise NotPermitted(
        f"{public[0]} is known from a public list of prices, without an account of {cloud}; "
        f"{first}then run spotctl prices fetch --cloud {cloud}"
    )


def unknown_quotas(markets: Collection[Market], settings: Settings) -> set[Market]:
    """The markets without a quota that was read in the last day; spot and on-demand quotas are read
    together.
    """
    stated = [quota for quota in account_quotas.read_lately(settings, wall_us()) if quota.spot]

    # A cloud with quotas by region may state one of all regions, too, which says nothing of a
    # region's own.
    by_region = {quota.cloud for quota in stated if quota.region is not None}
    read = [quota for quota in stated if quota.region is not None or quota.cloud not in by_region]
    return {
        market
        for market in markets
        if not any(
            quota.covers(
                market.cloud, market.region, family_of(market.instance_type), market.instance_type
            )
            for quota in read
        )
    }
