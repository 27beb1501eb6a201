"""Step 4 of a plan: the decision object of a job, on machines that are as good as one option. Pure."""

from dataclasses import replace

from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_strategy import Mixed
from bidbrain.decision.mixture_terms import Mixing, TypeQuota
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.deadline_job import DeadlineTerms
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.names import REGIONS
from bidbrain.strategies.registry import set_up
from pricing_data.list_prices import ListPrices
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.columns import usd_per_hour, useful_share
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.fleet import FleetPlan, plan_fleet
from spotctl.planning.forecasting import RATE_HOURS, launch_times
from spotctl.planning.machine_options import MachineOption
from spotctl.planning.market_history import ChosenStrategy, RentableFleet, strategy_for, strategy_inputs
from spotctl.planning.on_demand_limits import check_on_demand
from spotctl.planning.roaming import declared_gb, roaming_of
from spotctl.planning.values import BuiltDecider


def build_decider(
    allocated: AllocatedJob, option: MachineOption, facts: PlanningFacts, columns: KindColumns
) -> BuiltDecider:
    """The job's strategy, kept within the job's machines, quotas and deadline.

    Raises NotInTime if a strategy that needs on-demand machines gets too few.
    """
    allocated, fleet_plan = _fleet_plan(allocated, option, facts, columns)
    roams, known = allocated.demand.roams and fleet_plan.fallback.machines > 0, _strategy_inputs(allocated, fleet_plan)
    named, strategy = _chosen_strategy(allocated, known, roams=roams)
    if option.schedule is not None:
        strategy = Mixed(strategy, _mixing(allocated, option, fleet_plan, columns))
    roaming = _roaming(allocated, fleet_plan, facts.snapshot.catalog.lists) if roams else None
    decider = _decider(allocated, fleet_plan, known, strategy, roaming)
    offers = (*decider.offers, *(each.offer for each in decider.reserved))
    types = dict.fromkeys(offer.market.instance_type for offer in offers)
    return BuiltDecider(
        allocated,
        fleet_plan,
        named,
        decider,
        allocated.work_left(decider.most_nu),
        {name: allocated.rates[name] for name in types},
    )


def _fleet_plan(
    allocated: AllocatedJob, option: MachineOption, facts: PlanningFacts, columns: KindColumns
) -> tuple[AllocatedJob, FleetPlan]:
    """The fleet, and the job that it is for: without moves between regions if too few of its nodes on demand are left
    to keep its deadline."""
    fleet_plan = plan_fleet(allocated, option, facts, columns)
    fleet, fallback = fleet_plan.fleet, fleet_plan.fallback
    check_on_demand(allocated.job.spec, fallback, fleet, allocated.on_demand_quotas, facts.snapshot.catalog)
    if allocated.demand.roams and 0 < fallback.machines < fleet.baseline.machines:
        _check_may_stay(allocated, fleet_plan)
        staying = replace(allocated, demand=replace(allocated.demand, roams=False))
        return staying, plan_fleet(staying, option, facts, columns)
    return allocated, fleet_plan


def _check_may_stay(allocated: AllocatedJob, fleet_plan: FleetPlan) -> None:
    """Raises NotInTime if the job's strategy moves between regions in any case."""
    needed, held = fleet_plan.fleet.baseline, fleet_plan.fallback
    if allocated.job.spec.strategy == REGIONS:
        raise NotInTime(
            f"{allocated.demand.name}: strategy regions needs {needed.machines} machines of"
            f" {needed.offer.market.instance_type} on demand near the deadline, but quotas allow {held.machines}; raise"
            " the quota ('spotctl doctor' says how), or write strategy: auto"
        )


def _strategy_inputs(allocated: AllocatedJob, fleet_plan: FleetPlan) -> StrategyInputs:
    hours = _hours(allocated, fleet_plan.fleet)
    return strategy_inputs(fleet_plan.market_history, fleet_plan.fleet, hours, allocated.job.value_of_time_usd)


def _chosen_strategy(allocated: AllocatedJob, known: StrategyInputs, *, roams: bool) -> tuple[ChosenStrategy, Strategy]:
    """The name of the strategy and the reason for it, and the strategy, made from what is known."""
    named = allocated.strategy or strategy_for(allocated.job.spec, known.baseline.offer.market.cloud, roams=roams)
    # Where `regions` decides, this strategy only serves the deadline's safety net.
    made = set_up("on-demand" if roams else named.name, known)
    return replace(named, reason=f"{named.reason}; {made.note}") if made.note else named, made.strategy


def _mixing(allocated: AllocatedJob, option: MachineOption, fleet_plan: FleetPlan, columns: KindColumns) -> Mixing:
    """The terms on which a strategy follows the job's mixture."""
    demand, fleet, history = allocated.demand, fleet_plan.fleet, fleet_plan.market_history
    return Mixing(
        aim=option.aim,
        least=demand.least,
        most=demand.most,
        most_of_type=fleet_plan.limits.by_type,
        useful={
            market: useful_share(series, history.hazards[market], _listed(fleet, market), fleet.overheads)
            for market, series in history.histories.items()
        },
        overheads=fleet.overheads,
        usd_per_hour=usd_per_hour(fleet.reliable) + (allocated.job.value_of_time_usd or 0.0),
        quotas=tuple(
            TypeQuota({columns.kinds[j].type: float(group.per_machine[j]) for j in option.columns}, part)
            for group, part in zip(columns.quotas, allocated.share.quotas, strict=True)
        ),
    )


def _listed(fleet: RentableFleet, market: Market) -> int:
    return next(offer.on_demand for offer in fleet.offers if offer.market == market)


def _decider(
    allocated: AllocatedJob,
    fleet_plan: FleetPlan,
    known: StrategyInputs,
    strategy: Strategy,
    roaming: Roaming | None,
) -> Decider:
    fleet = fleet_plan.fleet
    deadline = _last_moment(allocated)
    return Decider(
        offers=fleet.offers,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        most_nu=fleet.most_nu,
        limits=fleet_plan.limits,
        overheads=fleet.overheads,
        deadline=deadline,
        strategy=strategy,
        billing=known.billing,
        lease=LeaseTimes.of(allocated.job.spec).committed,
        worth=None if deadline is None or roaming is not None else _worth(allocated, fleet_plan),
        roaming=None if deadline is None else roaming,
        caps_bids=True,
        most_bid=allocated.job.spec.most,
        reserved=fleet_plan.reserved,
    )


def _last_moment(allocated: AllocatedJob) -> int | None:
    """The deadline, less the time that a launch takes around its work; None if the job has none, or no known length."""
    if allocated.demand.work.assumed or allocated.job.deadline is None:
        return None
    times = launch_times(allocated.job.spec)
    return allocated.job.deadline - times.order - times.ending


def _roaming(allocated: AllocatedJob, fleet_plan: FleetPlan, lists: ListPrices) -> Roaming:
    history, saved = fleet_plan.market_history, declared_gb(allocated.job.spec)
    return roaming_of(fleet_plan.fleet.offers, history.histories, history.hazards, history.at, lists, saved)


def _worth(allocated: AllocatedJob, fleet_plan: FleetPlan) -> DeadlineStrategy | None:
    """The worth of slack, from the length on demand, the cost of changing machines, and how cheap spot is now; None
    without on-demand machines."""
    fleet, fallback = fleet_plan.fleet, fleet_plan.fallback
    if not fallback.machines:
        return None
    rate = fallback.machines * fallback.offer.nu
    work = max(round(allocated.work_amount(fleet.most_nu) / rate), 1)
    spot = min(fleet_plan.prices[offer.market] / offer.nu for offer in fleet.offers)
    ratio = fallback.offer.on_demand / fallback.offer.nu / spot
    return DeadlineStrategy(DeadlineTerms(work, fleet.overheads.startup + fleet.overheads.eviction, ratio))


def _hours(allocated: AllocatedJob, fleet: RentableFleet) -> float:
    """How long the job would take on demand; if its length is unknown, the time that its forecast covers."""
    if allocated.demand.work.assumed:
        return float(RATE_HOURS)
    baseline = fleet.baseline
    return allocated.work_amount(fleet.most_nu) / (baseline.machines * baseline.offer.nu) / HOUR
