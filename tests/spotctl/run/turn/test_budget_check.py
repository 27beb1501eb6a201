"""Runs that earlier rules ended too early, or warned about wrongly, under today's rules and under
the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import Allowance, MachineLimits
from bidbrain.strategies.base import Decision, Offer, Overheads, Rent, Situation
from bidbrain.strategies.standard import Standard
from pricing_data.units import MINUTE, NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.local.replayed import Replayed
from spotctl.log import budget, events as ev
from spotctl.log.budget import Tariff
from spotctl.log.outcomes import BUDGET, DONE
from spotctl.run.turn.budget_check import BudgetCheck, exhausted
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import Buy, Instruction, Renew, StrategyTerms
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    MARKETS,
    OFFERS,
    RUN,
    START,
    TARIFF,
    Life,
    Toil,
    World,
    flat,
    life,
    terms,
)

HOURLY = billing_rule("hourly-refund")


def amount(dollars: float) -> int:
    return round(dollars * NANO_SECONDS_PER_DOLLAR)


def rented(folder: Path, usd_per_hour: float, rounds: int, taken: int | None = None) -> Life:
    """A run on one market with begun hours, which evicts all machines in a round."""
    prices = flat(MARKETS[0], round(usd_per_hour * 1e9))
    cloud = FakeProvider(Replayed.of([prices]), START)
    world = World(cloud, {} if taken is None else {taken: (MARKETS[0], False)})
    one = replace(life(folder), world=world, work=Toil(world, rounds))
    one.tariff = Tariff(lambda _: HOURLY, lambda *_: prices)
    return one


@dataclass
class Paying:
    """A decision object that knows what is left of a run's budget."""

    decider: Decider
    left: Callable[[], float]
    name: str = "paying"

    def decide(self, situation: Situation) -> Decision:
        return self.decider.decide(replace(situation, usd_left=self.left()))


@pytest.mark.parametrize("nothing_else_is_tried", [False, True])
def test_an_order_that_does_not_fit_at_one_bid_is_made_at_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_else_is_tried: bool
) -> None:
    """$0.42 of $3.00 are spent when three machines at a bid of $0.90 would commit $2.70."""
    one = rented(tmp_path, 0.14, rounds=600, taken=130)
    offer, limit = Offer(MARKETS[0], 4.0, 900_000_000), amount(3.0)
    baseline, overheads = Rent(offer, 3, None), Overheads(2 * MINUTE, MINUTE, MINUTE // 2)
    limits = MachineLimits(3, 3, {})
    decider = Decider(
        (offer,),
        baseline,
        None,
        12.0,
        limits,
        overheads,
        None,
        Standard(),
        HOURLY,
        LEASE_TIMES.committed,
    )

    def left() -> float:
        committed = budget.committed(one.state(), one.cloud.now(), one.tariff, LEASE_TIMES.teardown)
        return (limit - committed) / NANO_SECONDS_PER_DOLLAR

    one.strategy, one.terms = Paying(decider, left), StrategyTerms((offer,), baseline, 12.0, 100.0)
    one.limits = RunLimits(limit, least=3)
    if nothing_else_is_tried:
        monkeypatch.setattr(Allowance, "_cheaper", lambda *_: None)
    ended = one.run()
    spent = ended.facts["spent"] / NANO_SECONDS_PER_DOLLAR
    if nothing_else_is_tried:
        assert (ended.outcome, spent) == (BUDGET, pytest.approx(0.42))
    else:
        assert (ended.outcome, spent) == (DONE, pytest.approx(0.84))


@pytest.mark.parametrize("begun_hours_count", [False, True])
def test_the_early_warning_does_not_divide_begun_hours_by_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_hours_count: bool
) -> None:
    """Six machines at $0.13 work for most of an hour: $0.78. At 35% of the work, the begun hour
    predicts $2.24.
    """
    one = rented(tmp_path, 0.13, rounds=600)
    offer = replace(OFFERS[0], on_demand=200_000_000)
    one.terms = StrategyTerms((offer,), Rent(offer, 6, None), 24.0, 100.0)

    def predict(self: BudgetCheck, share_done: float | None) -> None:
        if share_done is not None and share_done >= 0.348:
            told(self, share_done)

    told = BudgetCheck.predict
    monkeypatch.setattr(BudgetCheck, "predict", predict)
    if begun_hours_count:
        monkeypatch.setattr(budget, "used", budget.spent)
    one.limits = RunLimits(amount(2.2))
    ended = one.run()
    events = [row.event for row in one.rows()]
    warned = [
        event.committed / NANO_SECONDS_PER_DOLLAR
        for event in events
        if isinstance(event, ev.BudgetExceeded) and event.action == ev.FINISH
    ]
    assert (ended.outcome, ended.facts["spent"]) == (DONE, amount(0.78))
    assert warned == ([pytest.approx(2.24, abs=0.03)] if begun_hours_count else [])


@pytest.mark.parametrize("all_or_none", [False, True])
def test_a_renewal_that_does_not_fit_is_made_for_fewer_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_or_none: bool
) -> None:
    """`machines: 2..3`: from some time on, the budget covers the leases of two."""
    one = life(tmp_path, rounds=260)
    one.terms, one.limits = terms(reliable=0), RunLimits(amount(0.22), least=2)

    def refused(self: BudgetCheck, *_: object) -> Renew | None:
        self._journal.write(ev.StopRequested(BUDGET, exhausted(amount(0.22))))
        return None

    if all_or_none:
        monkeypatch.setattr(BudgetCheck, "_renewable", refused)
    ended = one.run()
    assert ended.outcome == (BUDGET if all_or_none else DONE)


@pytest.mark.parametrize("the_stop_is_overlooked", [False, True])
def test_no_machine_is_bought_once_the_run_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, the_stop_is_overlooked: bool
) -> None:
    """Of two orders, the first is too expensive and ends a run without machines; the second would
    fit.
    """
    one = life(tmp_path)

    def affordable(self: BudgetCheck, wanted: Sequence[Instruction]) -> Sequence[Instruction]:
        now, fitting = self._journal.now(), list[Instruction]()
        for instruction in wanted:
            if self._adds(instruction, now) <= amount(0.06):
                fitting.append(instruction)
            else:
                self._journal.write(ev.StopRequested(BUDGET, exhausted(amount(0.06))))
        return fitting

    if the_stop_is_overlooked:
        monkeypatch.setattr(BudgetCheck, "affordable", affordable)
    wanted = [Buy(Rent(OFFERS[0], 3, 200_000_000)), Buy(Rent(OFFERS[0], 1, 50_000_000))]
    with one.opened() as log:
        journal = Journal(log, RUN, one.cloud.now)
        journal.write(ev.RunBegan("job", "fake", {}, "", 0))
        check = BudgetCheck(journal, TARIFF, LEASE_TIMES, amount(0.06))
        bought = check.affordable(wanted)
        assert journal.state.stopping is not None
        assert bought == (wanted[1:] if the_stop_is_overlooked else [])
