"""No run exceeds its budget, whatever happens; `python -m tests.spotctl.run.budgets` plays
thousands.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.billing import rule_of_cloud
from bidbrain.strategies.base import (
    Decision,
    Offer,
    Rent,
    Situation,
    described as strategy_described,
)
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Holdings
from spotctl.log import budget, events as ev
from spotctl.log.outcomes import BUDGET, DONE
from spotctl.run.start.budgets import change_budget
from spotctl.run.turn.budget_check import BudgetCheck, described
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import Buy
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run.budgets import play
from tests.spotctl.run.faults import clean
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    OFFERS,
    PRICES,
    RUN,
    START,
    TARIFF,
    Death,
    Killed,
    Life,
    life,
    terms,
)

SEEDS = range(10)


def test_no_budget_is_exceeded() -> None:
    ends = {play(seed).outcome for seed in SEEDS}
    assert ends >= {BUDGET, DONE}, "the runs are too much alike"


def hours(dollars: float) -> int:
    return round(dollars * NANO_SECONDS_PER_DOLLAR)


def test_a_budget_that_covers_fewer_machines_keeps_as_many(tmp_path: Path) -> None:
    """Three machines at 5 cents an hour, bids of 20 cents: from some time on, only the leases of
    two fit.
    """
    one = life(tmp_path, rounds=260)
    one.terms = terms(reliable=0)
    one.limits = RunLimits(hours(0.22), least=2)
    ended = one.run()
    assert (ended.outcome, len(one.state().machines)) == ("done", 3)
    clean(one)
    ends = sorted(machine.ended or 0 for machine in one.cloud.everything)
    assert ends[0] + 10 * MINUTE < ends[-1], "one machine was given up before the others"
    strict = life(tmp_path / "strict", rounds=260)
    strict.terms, strict.limits = one.terms, RunLimits(hours(0.22), least=3)
    assert strict.run().outcome == BUDGET


def test_leases_run_out_before_a_run_is_given_up(tmp_path: Path) -> None:
    """The last leases are used, and the stop comes early enough to save the work."""
    one = life(tmp_path, rounds=2000)
    one.terms, one.limits = terms(reliable=0), RunLimits(hours(0.4))
    ended = one.run()
    assert ended.outcome == BUDGET
    state = one.state()
    stop = next(row.at for row in one.rows() if isinstance(row.event, ev.StopRequested))
    last = max(held.lease_until for held in state.machines.values())
    assert LEASE_TIMES.notice < last - stop <= LEASE_TIMES.renew_before // 2
    assert ended.facts["work_left"] == pytest.approx(1 - len(one.work.done) / 2000, abs=0.01)
    more = ended.facts["to_finish_usd"]
    assert f"of the work is left, about ${more:.2f} more" in ended.message
    # Three machines at 5 cents an hour do 6 rounds a minute.
    assert more == pytest.approx((2000 - len(one.work.done)) / 120 * 0.05, rel=0.3)


def set_to(one: Life, dollars: float) -> None:
    with one.opened() as log:
        change_budget(log, one.state, lambda state: state.budget_set, hours(dollars))


def test_a_runner_that_resumes_keeps_to_the_budget_that_was_set_while_it_was_gone(
    tmp_path: Path,
) -> None:
    """The budget of the job ends the run at less than half of its work."""
    one = life(tmp_path, rounds=2000)
    one.terms, one.limits = terms(reliable=0), RunLimits(hours(0.4))
    with pytest.raises(Killed):
        one.run(Death(200))
    set_to(one, 5)
    assert one.run().outcome == DONE
    assert one.state().limit(one.limits.budget) == hours(5)
    clean(one)
    lowered = life(tmp_path / "lowered", rounds=2000)
    lowered.terms, lowered.limits = terms(reliable=0), RunLimits(hours(5))
    with pytest.raises(Killed):
        lowered.run(Death(200))
    set_to(lowered, 0.4)
    ended = lowered.run()
    assert (ended.outcome, ended.message.split(" would")[0]) == (BUDGET, "the budget of $0.40")


@pytest.mark.parametrize("when", ["before", "after"])
def test_machines_that_the_budget_would_have_let_go_stay_once_it_is_raised(
    tmp_path: Path, when: str
) -> None:
    one = life(tmp_path, rounds=260)
    one.terms, one.limits = terms(reliable=0), RunLimits(hours(0.22), least=2)
    set_at_leave = SetsBudget(one, f"{when} write ReturnScheduled", 5)
    assert one.run(set_at_leave).outcome == DONE
    assert not set_at_leave.waits
    assert one.state().evictions == 0
    ends = [machine.ended or 0 for machine in one.cloud.everything]
    assert max(ends) - min(ends) <= MINUTE, "none was given up before the others"


@pytest.mark.parametrize("event", ["RentIntended", "RenewIntended", "StopRequested"])
def test_a_row_that_follows_from_an_earlier_budget_is_not_written(
    tmp_path: Path, event: str
) -> None:
    """The budget is set after the runner has decided, and before it writes: it decides again."""
    one = life(tmp_path, rounds=2000)
    one.terms, one.limits = terms(reliable=0), RunLimits(hours(0.4))
    setter = SetsBudget(one, f"before write {event}", 0.5)
    ended = one.run(setter)
    assert not setter.waits
    assert ended.outcome == BUDGET
    assert ended.message.startswith("the budget of $0.50")
    spent = ended.facts["spent"]
    assert hours(0.4) < spent <= hours(0.5)


class SetsBudget(Death):
    """Sets the budget once, when a runner first comes to a point."""

    def __init__(self, one: Life, where: str, dollars: float) -> None:
        super().__init__()
        self.waits, self._one, self._where, self._dollars = True, one, where, dollars

    def point(self, where: str) -> None:
        if self.waits and where == self._where:
            self.waits = False
            set_to(self._one, self._dollars)
        super().point(where)


class Short:
    """Finds nothing that the budget covers."""

    name = "short"

    def decide(self, situation: Situation) -> Decision:
        return Decision(
            (), situation.now + 2 * MINUTE, "waits for cheaper prices", unaffordable=True
        )


@pytest.mark.parametrize("reliable", [0, 1])
def test_a_run_that_can_pay_for_no_machine_waits_for_cheaper_prices_and_then_ends(
    tmp_path: Path, reliable: int
) -> None:
    one = replace(
        life(tmp_path, rounds=2000),
        strategy=Short(),
        limits=RunLimits(hours(5), without_machines=HOUR),
    )
    one.terms = terms(reliable)
    ended = one.run()
    assert ended.outcome == BUDGET
    assert HOUR < one.cloud.now() - START < HOUR + 10 * MINUTE
    clean(one)


def test_nothing_is_bought_after_the_stop(tmp_path: Path) -> None:
    """The first order ends a run without machines; the second would fit."""
    one = life(tmp_path)
    with one.opened() as log:
        journal = Journal(log, RUN, one.cloud.now)
        journal.write(ev.RunBegan("job", "fake", {}, "", 0))
        check = BudgetCheck(journal, TARIFF, LEASE_TIMES, hours(0.06))
        wanted = [Buy(Rent(OFFERS[0], 3, 200_000_000)), Buy(Rent(OFFERS[0], 1, 50_000_000))]
        assert check.affordable(wanted) == []
        assert journal.state.stopping is not None


class Billing(FakeProvider):
    """Its disks cost as much as its machines, and its addresses a tenth."""

    # One price for all.
    def holdings(
        self,
        market: Market,  # noqa: ARG002
        *,
        spot: bool,  # noqa: ARG002
        disk_gib: int | None,  # noqa: ARG002
        image: str | None = None,  # noqa: ARG002
    ) -> Holdings:
        return Holdings(50_000_000, 5_000_000)


def test_disks_and_addresses_are_in_the_log_and_in_the_budget(tmp_path: Path) -> None:
    """An order of three machines for a lease costs $0.16, and with disks and addresses $0.204."""
    for folder, limit, machines in (("enough", 0.21, 3), ("short", 0.18, 0)):
        one = life(tmp_path / folder, rounds=20)
        one.world.cloud = Billing(Replayed.of(PRICES.values()), START)
        one.terms, one.limits = terms(reliable=0), RunLimits(hours(limit))
        ended = one.run()
        assert (ended.outcome == DONE, len(one.cloud.everything)) == (machines > 0, machines)
        for held in one.state().allocations.values():
            assert (held.disk, held.address) == (50_000_000, 5_000_000)
        if machines:
            seconds = sum(
                -(-((one.ended or 0) - one.started) // 10**6) for one in one.cloud.everything
            )
            assert ended.facts["spent"] == seconds * 105_000_000


@pytest.mark.parametrize(
    ("cloud", "price"), [("gcp", "at the spot price"), ("aws", "bid $0.0500/h")]
)
def test_a_decision_names_a_bid_only_where_the_cloud_takes_one(cloud: str, price: str) -> None:
    rent = Rent(
        Offer(Market(cloud, "us-east1", "us-east1-b", "n1-standard-4"), 4.0, 200_000_000),
        2,
        50_000_000,
    )
    assert described(Buy(rent)).endswith(f", {price}")
    assert strategy_described(rent) == f"2 x n1-standard-4, {price}"


def test_the_early_warning_counts_used_time_and_not_begun_hours(tmp_path: Path) -> None:
    """Ten minutes of an hour that is paid in full are a sixth of its price in a forecast."""
    one = life(tmp_path)
    one.run()
    tariff = replace(TARIFF, rule=lambda _: rule_of_cloud("local"))
    state = one.state()
    machines = {
        name: replace(held, ended=None, end_reason="") for name, held in state.machines.items()
    }
    running = replace(state, machines=machines)
    now = START + 10 * MINUTE
    whole, part = budget.spent(running, now, tariff), budget.used(running, now, tariff)
    assert part == pytest.approx(whole * 10 * MINUTE / HOUR, rel=0.1)
