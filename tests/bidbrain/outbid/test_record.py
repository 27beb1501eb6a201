"""What snapshots of hosts tell, and what they do not."""

from __future__ import annotations

from math import log

import pytest

from bidbrain.outbid.record import Fate, Stays, pauses
from tests.bidbrain.outbid.test_odds import record


def test_snapshots_that_are_far_apart_tell_nothing() -> None:
    assert Stays.of(record((0, 0, 100), (4, 0, 200))).hours.size == 0
    stays = Stays.of(record((0, 0, 100), (0, 1, 100), (2, 0, 200), (2, 1, 100)))
    assert stays.hours.tolist() == [1.0, 2.0]
    assert stays.fate.tolist() == [Fate.RISEN, Fate.STAYS]
    assert stays.after[0] == pytest.approx(log(2))


def test_a_host_that_offers_its_machine_in_parts_is_one_host() -> None:
    """Whose other parts are not lost when it is seen again."""
    parts = [(hour, 0, bid) for hour in range(3) for bid in (130, 100, 120)]
    seen = record(*parts)
    assert seen.least_bid.tolist() == [100] * 3
    assert Stays.of(seen).fate.tolist() == [Fate.STAYS] * 2


def test_a_pause_lasts_until_the_host_takes_the_level_again() -> None:
    seen = record(
        *(
            (hour, host, bid)
            for host, bids in enumerate([(100, 300, 300, 100), (100,) * 4])
            for hour, bid in enumerate(bids)
        )
    )
    waited = pauses(seen, Stays.of(seen))
    assert (waited.evictions, waited.hours) == (1, 2)
