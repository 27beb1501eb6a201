"""A higher bid is never more likely to be outbid; and no bid changes how often renters on demand
displace a machine.
"""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.outbid.odds import OutbidOdds
from bidbrain.outbid.record import Fate, HostRecord, OwnRun, Stays
from pricing_data.units import HOUR

ON_DEMAND = 1_000
LEVELS = np.linspace(-4, 4, 400)

rows = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda step: step * HOUR // 3),
        st.integers(0, 6),
        st.integers(50, 900),
        st.just(ON_DEMAND),
    ),
    min_size=1,
    max_size=120,
    unique_by=lambda row: row[:2],
)


def record(*rows: tuple[float, int, int]) -> HostRecord:
    """Rows of an hour, a host and its minimum bid."""
    return HostRecord.of([(round(hour * HOUR), host, bid, ON_DEMAND) for hour, host, bid in rows])


def steady(hours: int, **bids: int) -> HostRecord:
    """Hosts that ask the same in every hour."""
    return record(
        *((hour, int(host[1:]), bid) for hour in range(hours) for host, bid in bids.items())
    )


@given(rows)
def test_more_is_never_outbid_more_often(known: list[tuple[int, int, int, int]]) -> None:
    """Whatever the snapshots show: also where dear hosts happened to rise and cheap ones did
    not."""
    rates = OutbidOdds.of(HostRecord.of(known)).outbid_per_hour(LEVELS)
    assert np.all(np.diff(rates) <= 0)
    assert np.all(rates > 0)


def test_without_two_snapshots_the_spread_of_the_hosts_is_all_that_is_known() -> None:
    """A bid that no host asks for is as safe as the assumption has it, and one in the middle is
    outbid in 20 hours.
    """
    odds = OutbidOdds.of(steady(1, h0=100, h1=200, h2=300))
    middle, high = odds.outbid_per_hour(np.array([0.0, log(3)])).tolist()
    assert middle == pytest.approx(0.1 * 1.5 / 4)
    assert high == pytest.approx(0.1 * 0.5 / 4)
    assert "spread" in odds.basis


def test_calm_hours_lower_the_rate_and_rises_raise_it() -> None:
    calm, short = steady(100, h0=100, h1=200, h2=300), steady(3, h0=100, h1=200, h2=300)
    busy = record(*((hour, host, 100 + hour % 2 * 50) for hour in range(100) for host in range(3)))
    level = np.zeros(1)
    rates = [float(OutbidOdds.of(each).outbid_per_hour(level)[0]) for each in (calm, short, busy)]
    assert rates[0] < rates[1] < rates[2]
    # Each host rises in every second hour, halfway.
    assert rates[2] == pytest.approx(1 / 1.5, rel=0.05)


def test_hosts_that_vanish_without_a_rise_are_displaced_and_not_outbid() -> None:
    gone = record(
        *((hour, host, 100) for hour in range(60) for host in range(4) if host or hour % 6)
    )
    odds = OutbidOdds.of(gone)
    assert odds.displaced_per_hour(0) > 3 * odds.displaced_per_hour(1)
    assert float(odds.outbid_per_hour(np.zeros(1))[0]) < 0.03


def test_own_runs_tell_of_their_bid_and_replace_what_snapshots_show_of_their_host() -> None:
    before = steady(30, h0=100, h1=100, h2=100)
    runs = [OwnRun(0, 150, hour * HOUR, hour * HOUR + HOUR // 2, Fate.RISEN) for hour in range(30)]
    level = np.array([log(1.5)])
    assert (
        OutbidOdds.of(before, runs).outbid_per_hour(level)[0]
        > 5 * OutbidOdds.of(before).outbid_per_hour(level)[0]
    )
    stays = Stays.of(before, runs)
    assert int(np.sum(stays.host == 0)) == 30
    assert np.all(stays.level[stays.host == 0] == pytest.approx(log(1.5)))


def test_a_busy_hour_of_the_whole_market_counts_for_the_next() -> None:
    calm = [(hour, host, 100) for hour in range(48) for host in range(10)]
    busy = [(48 + step / 3, host, 100 + 30 * step) for step in range(1, 5) for host in range(10)]
    level = np.zeros(1)
    now, later = (
        OutbidOdds.of(record(*calm, *busy)),
        OutbidOdds.of(
            record(
                *calm, *busy, *((hour, host, 100) for hour in range(50, 56) for host in range(10))
            )
        ),
    )
    assert now.outbid_per_hour(level)[0] > 2 * later.outbid_per_hour(level)[0]
