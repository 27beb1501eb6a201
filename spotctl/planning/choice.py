"""One job's plan on one kind of machines: what the strategy decides under its constraints, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from bidbrain.billing import BillingRule, rule_of_cloud
from bidbrain.cost import Application
from bidbrain.strategies.base import Decision, Rent, Situation, Strategy
from bidbrain.strategies.registry import set_up
from pricing_data.units import HOUR
from spotctl.files.job.spec import Command
from spotctl.planning.checkpoint_interval import Checkpoints, checkpoints_of
from spotctl.planning.constraints import Constraints
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.expected import Conditions, Part, Todo, beta_of, on_demand, usd_per_work, usd_range, whole
from spotctl.planning.fleet import Settled, settle
from spotctl.planning.market_history import strategy_for, strategy_inputs
from spotctl.planning.rejected import rejections
from spotctl.planning.values import Choice, Columns, JobPlan, Known, OnDemand, Question


def chosen(question: Question, home: int, known: Known, columns: Columns) -> JobPlan:
    """The plan with `home` as the measure of how much is rented."""
    settled = settle(question, home, known, columns)
    named = strategy_for(question.job.spec, settled.fleet.baseline.offer.market.cloud)
    inputs = strategy_inputs(settled.past, settled.fleet)
    constraints = _mandate(question, settled, set_up(named.scheme, inputs).strategy, inputs.billing)
    decision = _decision(question, constraints, settled, known.board.at)
    rents = [action for action in decision.actions if isinstance(action, Rent)]
    kept = _checkpoints(question, settled, rents)
    under, todo = _conditions(settled, kept), _todo(question)
    betas = [beta_of(settled.past, rent, settled.prices[rent.offer.market]) for rent in rents]
    parts = [Part.of(rent, settled.prices[rent.offer.market], beta) for rent, beta in zip(rents, betas, strict=True)]
    found = whole(parts, under, todo)
    if not isfinite(found.hours):
        raise NotInTime(
            f"{question.asked.name}: {named.scheme} would rent {rents[0].offer.market}, where machines are"
            " evicted too often to make progress; choose another strategy or other types"
        )
    choice = tuple(
        Choice(rent, part.price, beta, usd_per_work(share))
        for rent, part, beta, share in zip(rents, parts, betas, found.first.shares, strict=False)
    )
    usd, hours = on_demand(settled.fleet.baseline, under, todo)
    rejected = rejections(question, settled, under, choice, (known.board, columns))
    return JobPlan(
        job=question.job,
        at=known.board.at,
        policy=question.share.policy,
        strategy=named,
        constraints=constraints,
        decision=decision,
        choice=choice,
        work=question.asked.work,
        work_left=_work_left(question, constraints),
        rates={offer.market.instance_type: question.rates[offer.market.instance_type] for offer in constraints.offers},
        whole=found,
        usd_range=usd_range(parts, betas, settled.past, under, todo),
        on_demand=OnDemand(settled.fleet.baseline, usd, hours),
        rejected=rejected,
        unnamed=max(question.fitting - len({rent.offer.market for rent in rents}) - len(rejected), 0),
        past=settled.past,
        checkpoints=kept if _is_kept(question) else None,
    )


def wrong_with(plan: JobPlan) -> OverBudget | NotInTime | None:
    """Why a plan does not do: it is expected to cost more than the job may, or to be late."""
    budget, deadline, name = plan.job.budget_usd, plan.job.deadline, plan.job.spec.name
    if plan.work.assumed:
        return None
    if budget is not None and plan.whole.usd > budget:
        low, high = plan.usd_range
        return OverBudget(
            f"{name}: expected cost ${plan.whole.usd:.2f} (${low:.2f} to ${high:.2f}) exceeds the budget of"
            f" ${budget:.2f}; raise the budget, or reduce the job"
        )
    # A job that can afford on-demand machines finishes on them in time.
    on_demand_keeps = deadline is not None and plan.at + round(plan.on_demand.hours * HOUR) <= deadline
    if deadline is None or plan.finish_by <= deadline or (on_demand_keeps and plan.on_demand.usd <= (budget or inf)):
        return None
    return NotInTime(
        f"{name}: expected to take {plan.whole.hours:.1f} hours, {(plan.finish_by - deadline) / HOUR:.1f} hours past"
        f" the deadline; allow more time, or a budget of ${plan.on_demand.usd:.2f} for on-demand machines"
    )


def _mandate(question: Question, settled: Settled, strategy: Strategy, billing: BillingRule) -> Constraints:
    fleet = settled.fleet
    return Constraints(
        offers=fleet.offers,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        most_nu=fleet.most_nu,
        limits=settled.limits,
        overheads=fleet.overheads,
        deadline=None if question.asked.work.assumed else question.job.deadline,
        strategy=strategy,
        billing=billing,
    )


def _decision(question: Question, constraints: Constraints, settled: Settled, now: int) -> Decision:
    """What is decided when nothing is held yet."""
    asked = question.asked
    work = (
        inf
        if asked.work.assumed
        else asked.work.amount(constraints.most_nu if asked.work.timed else asked.reference_nu)
    )
    situation = Situation(
        now,
        constraints.offers,
        lambda offer: settled.prices[offer.market],
        (),
        constraints.baseline,
        constraints.most_nu,
        work * HOUR,
    )
    beside = constraints.reliable
    reserved = 0.0 if beside is None else beside.machines * constraints.committed_usd(beside)
    budget = question.job.budget_usd
    decision = constraints.decide(situation, inf if budget is None else budget - reserved)
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision
    if budget is None:
        raise NotInTime(f"{asked.name}: nothing would be rented: {decision.reason}")
    unbound = constraints.decide(situation)
    each = max(
        (constraints.committed_usd(action) for action in unbound.actions if isinstance(action, Rent)), default=0.0
    )
    raise OverBudget(
        f"{asked.name}: a budget of ${budget:.2f} does not cover {asked.least} machines at their bids until the end of"
        f" their first leases; raise it to ${reserved + asked.least * each:.2f}, or let the job use fewer machines"
    )


def _work_left(question: Question, constraints: Constraints) -> float:
    """In microseconds times nu; endless where nobody knows."""
    work = question.asked.work
    if work.assumed:
        return inf
    return HOUR * (work.amount(constraints.most_nu) if work.timed else question.asked.amount)


def _todo(question: Question) -> Todo:
    work = question.asked.work
    return Todo(None if work.timed else question.asked.amount, work.longest)


def _checkpoints(question: Question, settled: Settled, rents: Sequence[Rent]) -> Checkpoints | None:
    program = question.job.spec.program
    if not isinstance(program, Command):
        return None
    return checkpoints_of(
        program.checkpoint, [(rent, settled.prices[rent.offer.market]) for rent in rents], settled.past
    )


def _is_kept(question: Question) -> bool:
    """Whether a program says where its checkpoint lies; of one that does not, nobody knows."""
    program = question.job.spec.program
    return isinstance(program, Command) and program.checkpoint is not None


def _conditions(settled: Settled, kept: Checkpoints | None) -> Conditions:
    """A trainer stands still for an eviction. A command also writes checkpoints, and does again what came after the
    last: half of what lies between two of them."""
    overheads = settled.fleet.overheads
    phi, lost = (1.0, 0) if kept is None else (kept.useful_share, round(kept.every / 2))
    application = Application(phi, overheads.resize, overheads.eviction + lost)
    cloud = settled.fleet.baseline.offer.market.cloud
    return Conditions(rule_of_cloud(cloud), application, overheads.startup, settled.fleet.reliable)
