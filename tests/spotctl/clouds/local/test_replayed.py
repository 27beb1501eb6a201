"""When the replayed market ends machines, compared with the backtest's engine and with hand-counted
cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.billing import End
from bidbrain.errors import BidBrainError
from bidbrain.replay.job import run_job
from bidbrain.replay.market import Capacity, DrawnLives, MarketReplay, Mortality, Warnings
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Decision, Offer, Overheads, Rent, Situation
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NoCapacity
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import EndReason
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.clouds.markets import BEGIN, CALM


@st.composite
def histories(draw: st.DrawFn) -> PriceSeries:
    times = sorted(draw(st.sets(st.integers(1, 38), max_size=12)))
    prices = draw(st.lists(st.integers(1, 6), min_size=len(times) + 2, max_size=len(times) + 2))
    return markets.series(
        CALM, *zip([BEGIN + at * MINUTE for at in (0, *times, 40)], prices, strict=True)
    )


@st.composite
def capacities(draw: st.DrawFn) -> Capacity:
    times = sorted(draw(st.sets(st.integers(0, 39), min_size=1, max_size=8)))
    machines = draw(st.lists(st.integers(0, 4), min_size=len(times), max_size=len(times)))
    return Capacity(BEGIN + np.array(times) * MINUTE, np.array(machines))


class Buys:
    """Rents what it was given at the given moments, as far as prices allow; never returns a
    machine.
    """

    name = "buys"

    def __init__(self, orders: list[tuple[int, int, int]]) -> None:
        self._orders = orders

    def decide(self, situation: Situation) -> Decision:
        now, offer = situation.now, Offer(CALM, 1.0, 10)
        due = [one for one in self._orders if BEGIN + one[0] * MINUTE == now]
        later = [BEGIN + one[0] * MINUTE for one in self._orders if BEGIN + one[0] * MINUTE > now]
        self._orders = [one for one in self._orders if one not in due]
        price = situation.price(offer)
        rents = tuple(Rent(offer, machines, bid) for _, machines, bid in due if bid >= price)
        return Decision(rents, min(later, default=None))


@settings(max_examples=150)
@given(
    histories(),
    st.none() | capacities(),
    st.lists(
        st.tuples(st.integers(0, 35), st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=4
    ),
    st.none() | st.integers(0, 5),
)
def test_machines_end_as_the_backtest_predicts(
    series: PriceSeries,
    capacity: Capacity | None,
    orders: list[tuple[int, int, int]],
    seed: int | None,
) -> None:
    """The same orders at the same moments: machines end when and why the engine's do.

    At the end of the history the engine keeps its machines, while here their leases end or the
    market takes them.
    """
    limits = {} if capacity is None else {CALM: capacity}
    lives = None if seed is None else DrawnLives({CALM: Mortality(2.0)}, seed)
    orders = sorted(set(orders), key=lambda one: one[0])
    offer = Offer(CALM, 1.0, 10)
    job = ReplayedJob(BEGIN, 1e18, series.last, (offer,), Rent(offer, 1, None), 1e9)
    run = run_job(
        job, Buys(list(orders)), MarketReplay([series], limits, lives), Overheads(0, 0, 0)
    )
    predicted = sorted(
        (one.start, one.end, one.ended is End.EVICTED or one.end == series.last)
        for one in run.tenures
        for _ in range(one.rent.machines)
    )

    fake = FakeProvider(Replayed.of([series], limits, lives), BEGIN)
    for number, (minute, machines, bid) in enumerate(orders):
        fake.time = BEGIN + minute * MINUTE
        try:
            fake.create(replace(markets.order(str(number), series.last, machines), bid=bid))
        except NoCapacity:
            continue
    fake.time = series.last
    found = sorted(
        (one.started, one.ended, one.end_reason is EndReason.EVICTED or one.ended == series.last)
        for one in fake.list({})
    )
    assert found == predicted


def test_the_newest_machines_are_taken_first_when_capacity_falls() -> None:
    capacity = Capacity(BEGIN + np.array([0, 10, 20]) * MINUTE, np.array([3, 2, 1]))
    market = Replayed.of([markets.series(CALM, (BEGIN, 1), (BEGIN + HOUR, 1))], {CALM: capacity})
    order = replace(markets.order("t", BEGIN + HOUR, 5), bid=1)
    granted = market.grant(order, (), BEGIN)
    assert granted == (None, BEGIN + 20 * MINUTE, BEGIN + 10 * MINUTE)
    held = [None, BEGIN + 5 * MINUTE]
    # The machine before it is taken first, which leaves room until the second fall.
    assert market.grant(order, held, BEGIN + MINUTE) == (BEGIN + 20 * MINUTE,)
    with pytest.raises(NoCapacity, match="no machine left now"):
        market.grant(order, [None] * 3, BEGIN + MINUTE)


@given(
    st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0]), st.integers(0, 1000)
)
def test_the_share_of_unwarned_allocations_holds_in_any_stretch(
    seed: int, share: float, begin: int
) -> None:
    warnings = Warnings(2 * MINUTE, share, seed)
    told = [warnings.warned_at(number, BEGIN, BEGIN + HOUR) for number in range(begin, begin + 60)]
    assert set(told) <= {None, BEGIN + 58 * MINUTE}
    assert abs(told.count(None) - 60 * share) <= 1


def test_no_warning_comes_before_the_machine_starts() -> None:
    assert Warnings(HOUR).warned_at(0, BEGIN, BEGIN + MINUTE) == BEGIN
    with pytest.raises(BidBrainError, match="the share from 0 to 1"):
        Warnings(unwarned=1.5)
    with pytest.raises(BidBrainError, match="at least 0"):
        Warnings(ahead=-1)
