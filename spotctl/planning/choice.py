"""One job's plan on one kind of machines: what the strategy decides under its mandate, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from bidbrain.backtest.scenario import Scenario
from bidbrain.cost import Application
from bidbrain.strategies.base import Decision, Rent, Situation, Strategy
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.jobspec import Command
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.expected import Conditions, Part, Todo, beta_of, on_demand, usd_per_work, usd_range, whole
from spotctl.planning.fleet import Settled, settle
from spotctl.planning.mandate import Mandate
from spotctl.planning.past import CHECKPOINT, scenario_of, scheme_of, strategy_for
from spotctl.planning.regimes import billing_of
from spotctl.planning.rejected import rejections
from spotctl.planning.values import Choice, Columns, JobPlan, Known, OnDemand, Question


def chosen(question: Question, home: int, known: Known, columns: Columns) -> JobPlan:
    """The plan with `home` as the measure of how much is rented."""
    settled = settle(question, home, known, columns)
    named = strategy_for(question.job.spec, settled.fleet.baseline.offer.market.cloud)
    scenario = scenario_of(settled.past, settled.fleet)
    mandate = _mandate(question, settled, scheme_of(named.scheme, scenario).strategy)
    decision = _decision(question, mandate, settled, known.board.at)
    rents = [action for action in decision.actions if isinstance(action, Rent)]
    under, todo = _conditions(question, settled, scenario, rents), _todo(question)
    betas = [beta_of(settled.past, rent, settled.prices[rent.offer.market]) for rent in rents]
    parts = [Part.of(rent, settled.prices[rent.offer.market], beta) for rent, beta in zip(rents, betas, strict=True)]
    found = whole(parts, under, todo)
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
        mandate=mandate,
        decision=decision,
        choice=choice,
        work=question.asked.work,
        rates={offer.market.instance_type: question.rates[offer.market.instance_type] for offer in mandate.offers},
        whole=found,
        usd_range=usd_range(parts, betas, settled.past, under, todo),
        on_demand=OnDemand(settled.fleet.baseline, usd, hours),
        rejected=rejected,
        unnamed=max(question.fitting - len({rent.offer.market for rent in rents}) - len(rejected), 0),
    )


def over_budget(plan: JobPlan) -> OverBudget | None:
    """What is wrong with a plan that is expected to cost more than the job may."""
    budget = plan.job.budget_usd
    if budget is None or plan.work.assumed or plan.whole.usd <= budget:
        return None
    low, high = plan.usd_range
    return OverBudget(
        f"{plan.job.spec.name}: is expected to cost ${plan.whole.usd:.2f} (${low:.2f} to ${high:.2f}), more than its"
        f" budget of ${budget:.2f}; raise it, or give the job less to do"
    )


def _mandate(question: Question, settled: Settled, strategy: Strategy) -> Mandate:
    fleet = settled.fleet
    return Mandate(
        offers=fleet.offers,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        most_nu=fleet.most_nu,
        limits=settled.limits,
        overheads=fleet.overheads,
        deadline=None if question.asked.work.assumed else question.job.deadline,
        strategy=strategy,
    )


def _decision(question: Question, mandate: Mandate, settled: Settled, now: int) -> Decision:
    """What is decided when nothing is held yet."""
    asked = question.asked
    work = inf if asked.work.assumed else asked.amount * HOUR
    situation = Situation(
        now, mandate.offers, lambda offer: settled.prices[offer.market], (), mandate.baseline, mandate.most_nu, work
    )
    decision = mandate.decide(situation, _usd_for_an_hour(question, mandate))
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision
    refusal = NotInTime if question.job.budget_usd is None else OverBudget
    raise refusal(f"{asked.name}: nothing would be rented: {decision.reason}")


def _usd_for_an_hour(question: Question, mandate: Mandate) -> float:
    """What may be bought at once: an hour of it has to be paid, and every hour where time is all that ends the job."""
    budget = question.job.budget_usd
    if budget is None:
        return inf
    reliable = mandate.reliable
    beside = 0.0 if reliable is None else reliable.machines * reliable.offer.on_demand / NANOS_PER_DOLLAR
    work = question.asked.work
    hours = mandate.overheads.startup / HOUR + work.longest if work.timed else 1.0
    return budget / max(hours, 1.0) - beside


def _todo(question: Question) -> Todo:
    work = question.asked.work
    return Todo(None if work.timed else question.asked.amount, work.longest)


def _conditions(question: Question, settled: Settled, scenario: Scenario, rents: Sequence[Rent]) -> Conditions:
    """A trainer stands still for an eviction. A command also writes checkpoints, and does again what came after the
    last: half of what lies between two of them."""
    overheads, program = settled.fleet.overheads, question.job.spec.program
    phi, lost = 1.0, 0
    if isinstance(program, Command):
        every = _checkpoint_every(program, scenario, rents)
        phi, lost = every / (every + CHECKPOINT.write), round(every / 2)
    application = Application(phi, overheads.resize, overheads.eviction + lost)
    cloud = settled.fleet.baseline.offer.market.cloud
    return Conditions(billing_of(cloud), application, overheads.startup, settled.fleet.reliable)


def _checkpoint_every(program: Command, scenario: Scenario, rents: Sequence[Rent]) -> float:
    if program.checkpoint is not None and program.checkpoint.every is not None:
        return program.checkpoint.every
    interval = scenario.checkpoint_recovery().interval
    assert interval is not None
    return min(interval(rent.offer) for rent in rents)
