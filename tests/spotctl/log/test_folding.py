"""States that are computed from events."""

from __future__ import annotations

from pricing_data.units import MINUTE
from spotctl.log import events as ev
from spotctl.log.folding import NO_MACHINES
from spotctl.log.state import EVICTED
from tests.spotctl.log.test_observed import MARKET, granted, order, state


def test_a_market_that_refuses_is_asked_every_five_minutes_and_one_that_evicts_rests_longer() -> (
    None
):
    asked = [
        (7 * n * MINUTE, event)
        for n in range(9)
        for event in (order(n), ev.RentRefused(n, NO_MACHINES, ""))
    ]
    last = asked[-1][0]
    assert state(*asked).back_offs[MARKET, True].until == last + 5 * MINUTE
    held = (
        (last, order(9, machines=1)),
        (last, granted(9, 1, last)),
        (last, ev.MachineEnded("m-9-0", last, EVICTED)),
    )
    assert state(*asked, *held).back_offs[MARKET, True].until == last + 20 * MINUTE
