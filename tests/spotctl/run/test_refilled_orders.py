"""A run that got fewer machines than it wants, or loses some, orders the others, except from
markets in back-off.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Rent, Strategy
from bidbrain.strategies.standard import AlwaysOnDemand, Standard
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NoCapacity
from spotctl.clouds.provider import MachineRequest
from spotctl.planning.facts import OVERHEADS
from spotctl.run.turn.reconcile import StrategyTerms
from tests.spotctl.clouds.fake import Call, Fault, PartialGrant, Refusal
from tests.spotctl.run.worlds import OFFERS, RULE, START, Life, life

WANTED = 4
REFUSED = Refusal(NoCapacity("none are left"))


def wanting(folder: Path, strategy: Strategy, *faults: Fault, markets: int = 1) -> Life:
    """A run that wants 4 machines, whose orders meet these faults one after another."""
    one, offers, baseline = (
        life(folder, rounds=400),
        OFFERS[:markets],
        Rent(OFFERS[0], WANTED, None),
    )
    one.terms = StrategyTerms(offers, baseline, 16.0, 1000.0)
    limits = MachineLimits(1, WANTED, {})
    one.strategy = Decider(
        offers, baseline, None, 16.0, limits, OVERHEADS, None, strategy, RULE, HOUR
    )
    one.cloud.script("create", *faults)
    return one


def orders(one: Life) -> list[tuple[int, int]]:
    """How many machines were ordered, and in which minute."""
    calls = [(call.asked, (call.at - START) // MINUTE) for call in one.world.calls("create")]
    return [(asked.count, at) for asked, at in calls if isinstance(asked, MachineRequest)]


@pytest.mark.parametrize("strategy", [Standard(), AlwaysOnDemand()], ids=["spot", "on demand"])
def test_the_rest_of_an_order_is_ordered(tmp_path: Path, strategy: Strategy) -> None:
    one = wanting(tmp_path, strategy, PartialGrant(2), PartialGrant(1))
    assert one.run().outcome == "done"
    assert [count for count, _ in orders(one)] == [4, 2, 1]
    assert len(one.cloud.everything) == WANTED


def test_a_market_that_refuses_the_rest_is_asked_again_after_its_back_off(tmp_path: Path) -> None:
    one = wanting(tmp_path, Standard(), PartialGrant(2), REFUSED, REFUSED)
    assert one.run().outcome == "done"
    assert orders(one) == [(4, 0), (2, 0), (2, 2), (2, 6)]
    assert len(one.cloud.everything) == WANTED


def test_the_rest_comes_from_another_market_if_the_first_refuses_it(tmp_path: Path) -> None:
    one = wanting(tmp_path, Standard(), PartialGrant(2), REFUSED, markets=2)
    assert one.run().outcome == "done"
    assert [count for count, _ in orders(one)] == [4, 2, 2]
    assert [machine.market for machine in one.cloud.everything] == [
        OFFERS[i].market for i in (0, 0, 1, 1)
    ]


def test_a_machine_that_is_evicted_alone_is_replaced(tmp_path: Path) -> None:
    one = wanting(tmp_path, Standard())

    def takes_one(_: Call) -> None:
        if one.world.rounds == 20 and len(one.cloud.everything) == WANTED:
            one.cloud.evict(one.cloud.everything[0].id)

    one.cloud.weather = takes_one
    assert one.run().outcome == "done"
    assert [count for count, _ in orders(one)] == [4, 1]


def test_on_demand_machines_are_not_the_rest_of_an_order_of_spot_machines(tmp_path: Path) -> None:
    """All spot markets refuse for a while; what came of the order works on."""
    one = wanting(tmp_path, Standard(), PartialGrant(2), *[REFUSED] * 3)
    assert one.run().outcome == "done"
    assert {machine.bid is None for machine in one.cloud.everything} == {False}
