"""Jobs that go to whichever market is best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return
from bidbrain.strategies.spells import Known
from pricing_data.units import HOUR, MINUTE
from tests.bidbrain.decision.deciders import (
    WORK,
    A,
    deciding,
    held,
    rents,
    situation,
)
from tests.spotctl.planning.worlds import CENT, NOW


def test_a_gang_that_roams_turns_to_on_demand_machines_where_a_quota_holds_them() -> None:
    far = Offer(replace(A.market, region="far", zone="far-a"), 4.0, 40 * CENT)
    roaming = Roaming((A, far), np.zeros((2, 2)), Known.nothing(("near", "far")))
    limits = MachineLimits(8, 8, {}, together=True, on_demand={A.market: 7})
    made = replace(
        deciding(limits=limits, deadline=NOW + HOUR + MINUTE), offers=(A, far), roaming=roaming
    )
    assert rents(made.decide(situation(work=WORK, offers=(A, far)))) == [Rent(far, 8, None)]
    unlimited = replace(made, limits=replace(limits, on_demand={}))
    assert rents(unlimited.decide(situation(work=WORK, offers=(A, far)))) == [Rent(A, 8, None)]


def roaming_range(work: float, *holdings: Holding, **changes: Any) -> Decision:  # noqa: ANN401
    """What four to eight nodes do that may move, with much slack; the far market is much
    cheaper."""
    roaming = Roaming((A, FAR), np.zeros((2, 2)), Known.nothing(("near", "far")))
    made = deciding(limits=MachineLimits(4, 8, {}, together=True), deadline=NOW + 60 * HOUR)
    prices = {A: 10 * CENT, FAR: CENT}
    here = replace(
        situation(*holdings, work=work, offers=(A, FAR)), price=prices.__getitem__, **changes
    )
    return replace(made, offers=(A, FAR), roaming=roaming).decide(here)


FAR = Offer(replace(A.market, region="far", zone="far-a"), 4.0, 20 * CENT)


LONG = 32.0 * 20 * HOUR


def test_a_range_of_nodes_that_roams_starts_with_all_and_moves_to_a_cheaper_market_as_a_whole() -> (
    None
):
    assert rents(roaming_range(LONG)) == [Rent(FAR, 8, FAR.on_demand)]
    moved = roaming_range(LONG, held(1, A, 8), held(2, A, 2))
    assert rents(moved) == [Rent(FAR, 8, FAR.on_demand)]
    assert {
        one.allocation for one in moved.actions if isinstance(one, Return) and one.replaced
    } == {1, 2}
    # What an order brought too little of is returned, also in the market of those that run.
    assert Return(2) in roaming_range(LONG, held(1, FAR, 8, None), held(2, FAR, 2)).actions
    # Three are too few to work.
    alone = roaming_range(LONG, held(1, A, 3))
    assert set(alone.actions) == {Rent(FAR, 8, FAR.on_demand), Return(1)}


def test_a_range_of_nodes_that_roams_goes_on_with_some_and_asks_its_market_for_the_others() -> None:
    short = roaming_range(LONG, held(1, FAR, 5))
    assert short.actions == (Rent(FAR, 3, 5 * CENT),)
    assert short.reason == "5 of 8 nodes are running"
    closed = roaming_range(LONG, held(1, FAR, 5), offers=(A,))
    assert closed.actions == ()
    assert closed.reason == "continues with 5 of 8 nodes: their market has no more now"
    # It works, and the other market has lately refused all of them: it is not left for fewer or as
    # many.
    refusing = {(FAR.market, True): 8}
    assert rents(roaming_range(LONG, held(1, A, 5, 20 * CENT), refused=refusing)) == [
        Rent(A, 3, 20 * CENT)
    ]
    assert rents(roaming_range(LONG, refused=refusing)) == [Rent(FAR, 6, FAR.on_demand)]
