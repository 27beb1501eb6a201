from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.billing import (
    Bill,
    Charge,
    End,
    ImpossibleLife,
    Life,
    UnknownBillingRule,
    billing_rule,
    billing_rules,
    usd,
)
from bidbrain.errors import BidBrainError, TooLittleHistory
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND
from tests.pricing_data.histories import START, series

FIRST_HOUR_FREE = "per-second-first-hour-free"
EDGES = (
    0,
    1,
    SECOND,
    MINUTE - 1,
    MINUTE,
    MINUTE + 1,
    HOUR - 1,
    HOUR,
    HOUR + 1,
    HOUR + MINUTE,
    2 * HOUR,
)
lengths = st.sampled_from(EDGES) | st.integers(0, 2 * HOUR + 10 * MINUTE)
waits = st.sampled_from((0, 1, SECOND)) | st.integers(0, 600 * SECOND)
# Prices often change where something else happens too: at the end of a minute, of an hour, of a
# life.
moves = st.sampled_from((1, 2, 59, 60, 61, 3599, 3600, 3601, 3660, 7200)) | st.integers(1, 9000)
histories = st.dictionaries(moves, st.integers(1, 9), max_size=12)


def history(shape: dict[int, int]) -> PriceSeries:
    return series((0, 5), *sorted(shape.items()), (9001, 3))


def life(seconds: float, ended: End, start: float = 0) -> Life:
    begin = START + round(start * SECOND)
    return Life(begin, begin + round(seconds * SECOND), ended)


def second_by_second(name: str, lived: Life, known: PriceSeries) -> int:
    """What a provider would add up with a stopwatch: every second of the life has its own price."""
    times, prices = known.times.tolist(), known.prices.tolist()
    # Arrays: a loop over two hours of seconds exceeds hypothesis's default deadline on a busy
    # machine.
    clock = np.arange(lived.start, lived.end, SECOND)
    fixed = name in ("hourly-refund", FIRST_HOUR_FREE)
    priced_at = clock - (np.arange(clock.size) % 3600 * SECOND if fixed else 0)
    paid: list[int] = known.prices[
        np.searchsorted(known.times, priced_at, side="right") - 1
    ].tolist()
    if not paid or lived.ended is End.HANDED_ON:
        return sum(paid)
    evicted, length = lived.ended is End.EVICTED, lived.end - lived.start
    if name == "azure":
        return sum(paid[: length // MINUTE * 60])
    if name == "hourly-refund":
        unfinished = length % HOUR != 0
        paid += [paid[-1]] * (-len(paid) % 3600)
        return sum(paid[:-3600] if evicted and unfinished else paid)
    if name in ("vast", "runpod", "slurm"):
        return sum(paid)
    free_span = {"per-second": 0, FIRST_HOUR_FREE: HOUR, "gcp": MINUTE}[name]
    last = paid[-1] if name == FIRST_HOUR_FREE else prices[bisect_right(times, lived.end - 1) - 1]
    return 0 if evicted and length < free_span else sum(paid) + last * max(0, 60 - len(paid))


@pytest.mark.parametrize("name", list(billing_rules()))
@settings(max_examples=60)
@given(histories, waits, lengths, st.sampled_from(End))
def test_a_bill_equals_its_seconds_added_up(
    name: str, shape: dict[int, int], wait: int, length: int, ended: End
) -> None:
    known = history(shape)
    lived = Life(START + wait, START + wait + length, ended)
    assert billing_rule(name).bill(lived, known).amount == second_by_second(name, lived, known)


@pytest.mark.parametrize("name", list(billing_rules()))
@given(histories, waits, lengths, st.sampled_from(End))
def test_rows_cover_the_life_and_say_what_was_given_back(
    name: str, shape: dict[int, int], wait: int, length: int, ended: End
) -> None:
    known, rule = history(shape), billing_rule(name)
    lived = Life(START + wait, START + wait + length, ended)
    bill = rule.bill(lived, known)
    edges = [row.begin for row in bill.charges] + ([lived.end] if length else [])
    assert [row.end for row in bill.charges] == edges[1:]
    assert not length or edges[0] == lived.start
    assert all(row.begin < row.end and row.seconds >= 0 for row in bill.charges)
    assert all(row.price == known.price_at(row.begin) for row in bill.charges)
    refund = sum(row.price * row.seconds for row in bill.charges if row.refunded)
    if ended is not End.EVICTED:
        assert refund == 0
    elif name != "azure":
        left = rule.bill(Life(lived.start, lived.end, End.LEFT), known)
        assert bill.amount + refund == left.amount


@pytest.mark.parametrize("name", list(billing_rules()))
@given(lengths, st.sampled_from(End), st.integers(1, 10**9))
def test_a_constant_price_bills_as_a_history_that_never_moves(
    name: str, length: int, ended: End, price: int
) -> None:
    lived, rule = Life(START, START + length, ended), billing_rule(name)
    assert rule.bill(lived, price) == rule.bill(lived, series((0, price), (9001, price)))


PRICES = series((0, 100), (1800, 300), (3000, 50), (5400, 700), (9000, 10))
"""100 for half an hour, then 300, from minute 50 on 50, from minute 90 on 700."""


@pytest.mark.parametrize(
    ("name", "seconds", "ended", "amount"),
    [
        # Hours cost the price at their start, regardless of changes within them: 100, then 50.
        ("hourly-refund", 5000, End.LEFT, 3600 * 100 + 3600 * 50),
        ("hourly-refund", 5000, End.EVICTED, 3600 * 100),
        ("hourly-refund", 5000, End.HANDED_ON, 3600 * 100 + 1400 * 50),
        ("hourly-refund", 1, End.LEFT, 3600 * 100),
        ("hourly-refund", 1, End.EVICTED, 0),
        # An eviction at the very end of an hour finds it complete.
        ("hourly-refund", 3600, End.EVICTED, 3600 * 100),
        ("hourly-refund", 3600, End.LEFT, 3600 * 100),
        ("hourly-refund", 3600 + 1e-6, End.LEFT, 3600 * 150),
        # The current price: 1800 s at 100, 1200 at 300, 2000 at 50.
        ("per-second", 5000, End.EVICTED, 1800 * 100 + 1200 * 300 + 2000 * 50),
        ("per-second", 10, End.EVICTED, 60 * 100),
        ("per-second", 10, End.HANDED_ON, 10 * 100),
        ("per-second", 60.5, End.LEFT, 61 * 100),
        # Fixed by the hour, paid by the second, free before the first hour is over.
        (FIRST_HOUR_FREE, 5000, End.EVICTED, 3600 * 100 + 1400 * 50),
        (FIRST_HOUR_FREE, 5000, End.LEFT, 3600 * 100 + 1400 * 50),
        (FIRST_HOUR_FREE, 3599.999999, End.EVICTED, 0),
        (FIRST_HOUR_FREE, 3600, End.EVICTED, 3600 * 100),
        (FIRST_HOUR_FREE, 2000, End.LEFT, 2000 * 100),
        (FIRST_HOUR_FREE, 7, End.LEFT, 60 * 100),
        ("gcp", 59.999999, End.EVICTED, 0),
        ("gcp", 60, End.EVICTED, 60 * 100),
        ("gcp", 10, End.LEFT, 60 * 100),
        ("gcp", 1801, End.EVICTED, 1800 * 100 + 300),
        # 6 minutes and 45 seconds are 6 minutes.
        ("azure", 405, End.LEFT, 360 * 100),
        ("azure", 405, End.EVICTED, 360 * 100),
        ("azure", 405, End.HANDED_ON, 405 * 100),
        ("azure", 59, End.LEFT, 0),
    ],
)
def test_cases_solved_by_hand(name: str, seconds: float, ended: End, amount: int) -> None:
    assert billing_rule(name).bill(life(seconds, ended), PRICES).amount == amount


def test_the_rows_of_an_evicted_hour_show_the_refund() -> None:
    bill = billing_rule("hourly-refund").bill(life(5000, End.EVICTED), PRICES)
    hour_end = START + HOUR
    assert bill == Bill(
        (
            Charge(START, hour_end, price=100, seconds=3600),
            Charge(hour_end, START + 5000 * SECOND, price=50, seconds=3600, refunded=True),
        )
    )
    assert bill.amount == 360_000


def test_the_minimum_is_filled_at_the_last_price() -> None:
    rising = series((0, 100), (10, 200), (100, 200))
    rows = billing_rule("per-second").bill(life(15, End.LEFT), rising).charges
    assert [(row.price, row.seconds) for row in rows] == [(100, 10), (200, 50)]
    # It may have come into force after the last second had begun.
    rows = billing_rule("per-second").bill(life(10, End.LEFT, start=0.5), rising).charges
    assert [(row.price, row.seconds) for row in rows] == [(100, 10), (200, 50)]


def test_a_price_repeated_is_not_another_row() -> None:
    watched = series((0, 100), (10, 100), (20, 100), (30, 200), (100, 200))
    rows = billing_rule("gcp").bill(life(40, End.LEFT, start=5), watched).charges
    assert [(row.price, row.seconds) for row in rows] == [(100, 25), (200, 35)]


@pytest.mark.parametrize("name", list(billing_rules()))
@pytest.mark.parametrize("ended", End)
def test_a_life_of_no_length_costs_nothing(name: str, ended: End) -> None:
    assert billing_rule(name).bill(life(0, ended), PRICES) == Bill(())
    assert billing_rule(name).bill(life(0, ended), 100) == Bill(())


@pytest.mark.parametrize("name", list(billing_rules()))
@pytest.mark.parametrize(("start", "seconds"), [(-1, 100), (8000, 1001), (8999, 2), (9000.5, 1)])
def test_a_life_outside_the_price_history_is_refused(
    name: str, start: float, seconds: float
) -> None:
    with pytest.raises(
        TooLittleHistory, match=r"c4\.xlarge has prices from .* import a longer history"
    ):
        billing_rule(name).bill(life(seconds, End.LEFT, start), PRICES)
    # A life may last to the last known moment, even if its paid hour extends beyond it.
    assert billing_rule(name).bill(life(1000, End.LEFT, 8000), PRICES).charges


@pytest.mark.parametrize("name", list(billing_rules()))
def test_only_what_is_paid_already_is_free(name: str) -> None:
    assert billing_rule(name).bill(life(100, End.LEFT), 0).amount == 0
    with pytest.raises(ImpossibleLife, match=r"a price of -1 nano-dollars per hour is below 0"):
        billing_rule(name).bill(life(100, End.LEFT), -1)


def test_a_life_does_not_end_before_it_starts() -> None:
    with pytest.raises(ImpossibleLife, match="before its start"):
        Life(START, START - 1, End.LEFT)


def test_an_unknown_rule_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownBillingRule,
        match=r"'hourly' is unknown \(known: hourly-refund, per-second, .*gcp, azure",
    ) as error:
        billing_rule("hourly")
    assert isinstance(error.value, BidBrainError)
    assert [billing_rule(name).name for name in billing_rules()] == list(billing_rules())


@pytest.mark.parametrize(
    ("name", "after", "owed"),
    [
        ("hourly-refund", 1, 3600 * 100),
        ("hourly-refund", 3600, 3600 * 100),
        ("hourly-refund", 3601, 3600 * 150),
        ("per-second", 2000, 1800 * 100 + 200 * 300),
        (FIRST_HOUR_FREE, 2000, 2000 * 100),
        ("gcp", 1, 60 * 100),
        ("azure", 119, 60 * 100),
    ],
)
def test_a_machine_owes_what_leaving_now_would_cost(name: str, after: int, owed: int) -> None:
    life = Life(START, START + after * SECOND, End.LEFT)
    assert billing_rule(name).bill(life, PRICES).amount == owed


def test_amounts_are_exact_until_they_are_shown() -> None:
    """Three hours at a price of nine decimals, which floating-point dollars would round in every
    row.
    """
    bill = billing_rule("per-second").bill(life(3 * 3600, End.LEFT), 441_435_835)
    assert bill.amount == 3 * 3600 * 441_435_835
    assert usd(bill.amount) == 1.324307505
    assert usd(3600 * NANOS_PER_DOLLAR) == 1.0
