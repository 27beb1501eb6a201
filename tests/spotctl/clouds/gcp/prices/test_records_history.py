"""Parsers of the capacity history."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from google.cloud import compute_v1
from hypothesis import given, strategies as st

from pricing_data.availability import Interruption
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.sources.base import Rejects
from pricing_data.units import HOUR, LATEST, SECOND, Span, format_time, parse_time
from spotctl.clouds.gcp.prices.records import (
    HISTORY_SOURCE,
    interruptions,
    market_of,
    price_history,
)
from tests.servers.gcp import history, interval, preempted, priced
from tests.servers.pulling import observed_events

REGION, TYPE = "us-central1", "n2-standard-4"
MARKET = Market("gcp", REGION, "-", TYPE)
EVER = Span(0, LATEST)


def at(text: str) -> int:
    return parse_time(f"2026-{text}Z")


def events_of(
    *prices: compute_v1.CapacityHistoryResponsePriceRecord, window: Span = EVER
) -> list[PriceEvent]:
    rejects = Rejects("prices")
    events, watched = price_history(MARKET, history(REGION, TYPE, prices), window, rejects)
    rejects.report()
    return observed_events(FetchedRows(prices=PriceBatch.of(events), watched={MARKET: watched}))


def test_a_price_is_an_event_at_the_start_of_its_interval_with_every_nano_dollar() -> None:
    first = priced("2026-08-01T07:00:00Z", "2026-08-15T07:00:00Z", 1_441_435_835)
    second = priced("2026-08-15T07:00:00Z", "2026-09-01T07:00:00Z", 60_000_001)
    events = events_of(second, first, window=Span(0, at("08-20T00:00:00")))
    assert events == [
        PriceEvent(MARKET, at("08-01T07:00:00"), 1_441_435_835),
        PriceEvent(MARKET, at("08-15T07:00:00"), 60_000_001),
        PriceEvent(MARKET, at("08-20T00:00:00"), 60_000_001),
    ]


@pytest.mark.parametrize("end", [None, "2026-10-01T07:00:00Z"], ids=["open", "announced"])
def test_a_price_in_force_now_is_known_now(end: str | None) -> None:
    now = at("09-10T12:00:00")
    assert events_of(priced("2026-09-01T07:00:00Z", end, 5), window=Span(0, now))[-1] == PriceEvent(
        MARKET, now, 5
    )


def test_a_price_that_ended_is_known_until_its_end_and_no_longer() -> None:
    events = events_of(priced("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z", 5))
    assert events[-1] == PriceEvent(MARKET, at("09-02T07:00:00"), 5)


def test_prices_before_the_window_are_left_out_except_the_one_in_force_at_its_start() -> None:
    prices = [
        priced(f"2026-08-0{day}T00:00:00Z", f"2026-08-0{day + 1}T00:00:00Z", day)
        for day in range(1, 6)
    ]
    window = Span(at("08-03T12:00:00"), at("08-04T12:00:00"))
    assert events_of(*prices, window=window) == [
        PriceEvent(MARKET, at("08-03T00:00:00"), 3),
        PriceEvent(MARKET, at("08-04T00:00:00"), 4),
        PriceEvent(MARKET, at("08-04T12:00:00"), 4),
    ]


def test_a_price_that_ended_when_the_window_begins_is_left_out() -> None:
    ended = priced("2026-08-01T00:00:00Z", "2026-08-02T00:00:00Z", 1)
    assert events_of(ended, window=Span(at("08-02T00:00:00"), at("08-03T00:00:00"))) == []


def test_a_price_after_the_window_is_left_out() -> None:
    assert (
        events_of(priced("2026-09-02T00:00:00Z", None, 1), window=Span(0, at("09-01T00:00:00")))
        == []
    )


stretches = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 10**12)),
    min_size=1,
    max_size=12,
)


@given(stretches, st.integers(0, 400), st.integers(0, 400), st.randoms(use_true_random=False))
def test_the_events_give_the_prices_of_the_intervals(
    stretches: list[tuple[int, int, int]], begin: int, length: int, random: Random
) -> None:
    origin = at("01-01T00:00:00")
    held, clock = [], origin
    for gap, duration, price in stretches:
        start = clock + gap * HOUR
        clock = start + duration * HOUR
        held.append((start, clock, price))
    window = Span(origin + begin * HOUR, origin + (begin + length) * HOUR)
    records = [priced(format_time(start), format_time(end), price) for start, end, price in held]
    random.shuffle(records)
    events = events_of(*records, window=window)

    inside = [
        (start, end, price)
        for start, end, price in held
        if end > window.start and start <= window.end
    ]
    assert bool(events) == bool(inside)
    if not events:
        return
    series = PriceSeries(
        MARKET, np.array([e.time for e in events]), np.array([e.price for e in events])
    )
    for start, end, price in inside:
        for moment in (start, min(end - 1, window.end)):
            assert series.price_at(moment) == price
    assert series.last == min(inside[-1][1], window.end)


def test_preemption_rates_are_those_of_complete_days() -> None:
    days = [
        preempted(f"2026-09-0{d}T07:00:00Z", f"2026-09-0{d + 1}T07:00:00Z", d / 10)
        for d in (1, 2, 3, 4)
    ]
    rejects = Rejects("history")
    window = Span(at("09-02T07:00:00"), at("09-04T12:00:00"))
    rates = interruptions(MARKET, history(REGION, TYPE, preemptions=days), window, rejects)
    assert rates == (
        Interruption(MARKET, "preemption-rate", at("09-03T07:00:00"), 0.2, 0.2, HISTORY_SOURCE),
        Interruption(MARKET, "preemption-rate", at("09-04T07:00:00"), 0.3, 0.3, HISTORY_SOURCE),
    )
    assert rejects.count == 0


def test_a_rate_of_zero_is_a_rate() -> None:
    day = preempted("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z", 0.0)
    (rate,) = interruptions(
        MARKET, history(REGION, TYPE, preemptions=[day]), EVER, Rejects("history")
    )
    assert (rate.low, rate.high) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("location", "zone"),
    [
        ("", "-"),
        ("https://www.googleapis.com/compute/v1/projects/p/regions/us-central1", "-"),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-f", "us-central1-f"),
        ("zones/us-central1-f", "us-central1-f"),
    ],
)
def test_the_market_is_the_region_unless_a_zone_is_named(location: str, zone: str) -> None:
    answer = compute_v1.CapacityHistoryResponse(machine_type=TYPE, location=location)
    assert market_of(answer, REGION, TYPE) == Market("gcp", REGION, zone, TYPE)


@pytest.mark.parametrize(
    ("machine_type", "location"),
    [
        ("n2-standard-8", "regions/us-central1"),
        (TYPE, "regions/europe-west4"),
        (TYPE, "zones/europe-west4-a"),
        (TYPE, "zones/us-central10-a"),
    ],
)
def test_an_answer_about_something_else_is_rejected(machine_type: str, location: str) -> None:
    answer = compute_v1.CapacityHistoryResponse(machine_type=machine_type, location=location)
    with pytest.raises(BadInput, match="requested n2-standard-4 in us-central1"):
        market_of(answer, REGION, TYPE)


BAD_PRICES = {
    "no price": compute_v1.CapacityHistoryResponsePriceRecord(
        interval=interval("2026-09-01T07:00:00Z", None)
    ),
    "free": priced("2026-09-01T07:00:00Z", None, 0),
    "negative": priced("2026-09-01T07:00:00Z", None, -5),
    "absurd": priced("2026-09-01T07:00:00Z", None, 10_001 * 10**9),
    "other money": priced("2026-09-01T07:00:00Z", None, 5, currency="EUR"),
    "no interval": compute_v1.CapacityHistoryResponsePriceRecord(
        list_price=priced("x", None, 5).list_price
    ),
    "broken time": priced("yesterday", None, 5),
    "backwards": priced("2026-09-01T07:00:00Z", "2026-08-01T07:00:00Z", 5),
    "empty": priced("2026-09-01T07:00:00Z", "2026-09-01T07:00:00Z", 5),
}


@pytest.mark.parametrize("bad", BAD_PRICES.values(), ids=BAD_PRICES.keys())
def test_an_unreadable_price_is_counted_and_the_others_are_kept(
    bad: compute_v1.CapacityHistoryResponsePriceRecord,
) -> None:
    good = priced("2026-08-01T07:00:00Z", "2026-08-02T07:00:00Z", 7)
    rejects = Rejects("history")
    events, watched = price_history(MARKET, history(REGION, TYPE, [bad, good]), EVER, rejects)
    assert [event.price for event in events] == [7]
    assert [span.start for span in watched.complete] == [events[0].time]
    assert rejects.count == 1
    assert rejects.example.startswith("gcp/us-central1/-/n2-standard-4: ")


BAD_RATES = {
    "above one": preempted("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z", 1.5),
    "negative": preempted("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z", -0.1),
    "not a number": preempted("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z", float("nan")),
    "no end": preempted("2026-09-01T07:00:00Z", None, 0.5),
    "no rate": compute_v1.CapacityHistoryResponsePreemptionRecord(
        interval=interval("2026-09-01T07:00:00Z", "2026-09-02T07:00:00Z")
    ),
}


@pytest.mark.parametrize("bad", BAD_RATES.values(), ids=BAD_RATES.keys())
def test_an_unreadable_rate_is_counted_and_the_others_are_kept(
    bad: compute_v1.CapacityHistoryResponsePreemptionRecord,
) -> None:
    good = preempted("2026-08-01T07:00:00Z", "2026-08-02T07:00:00Z", 0.25)
    rejects = Rejects("history")
    rates = interruptions(MARKET, history(REGION, TYPE, preemptions=[bad, good]), EVER, rejects)
    assert [rate.low for rate in rates] == [0.25]
    assert rejects.count == 1


def test_fractions_of_a_second_are_kept() -> None:
    events = events_of(priced("2026-09-01T07:00:00.500000123Z", "2026-09-01T07:00:01Z", 5))
    assert events[0].time == at("09-01T07:00:00") + SECOND // 2
