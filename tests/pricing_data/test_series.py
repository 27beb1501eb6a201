"""Observed time: what sources report, and that every figure is over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.errors import TooLittleHistory
from bidbrain.eviction.crossing import CrossingHistory
from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.errors import OutsideHistory
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.ingest import ingest
from pricing_data.market import Market
from pricing_data.series import (
    PriceSeries,
    Recording,
    WatchRecord,
    clipped,
    held,
    holes,
    of_events,
    union,
)
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, SECOND, Span, parse_time
from tests.pricing_data.histories import START, market, series, stored
from tests.pricing_data.sources.test_files import HEADER, written

steps = st.dictionaries(st.integers(0, 50), st.integers(1, 9), min_size=2, max_size=20)


def by_seconds(known: PriceSeries) -> list[int]:
    """The price in each second of the span, found without any of the functions under test."""
    prices = dict(zip(known.times.tolist(), known.prices.tolist(), strict=True))
    now, each_second = 0, []
    for time in range(known.first, known.last, SECOND):
        now = prices.get(time, now)
        each_second.append(now)
    return each_second


@given(steps)
def test_time_above_equals_a_count_of_seconds(shape: dict[int, int]) -> None:
    known = series(*sorted(shape.items()))
    prices = by_seconds(known)
    assert [known.seconds_above(bid) for bid in range(10)] == [
        sum(p > bid for p in prices) for bid in range(10)
    ]
    assert [known.price_at(known.first + i * SECOND) for i in range(len(prices))] == prices


@given(steps, st.data())
def test_a_window_is_the_same_function_on_a_shorter_span(
    shape: dict[int, int], data: st.DataObject
) -> None:
    known = series(*sorted(shape.items()))
    start = data.draw(st.integers(known.first, known.last))
    end = data.draw(st.integers(start, known.last))
    part = known.window(start, end)
    assert (part.first, part.last) == (start, end)
    assert all(
        part.price_at(t) == known.price_at(t)
        for t in {start, (start + end) // 2, end, *part.times.tolist()}
    )


def test_the_step_is_right_continuous() -> None:
    known = series((0, 5), (10, 7))
    assert known.price_at(START + 10 * SECOND) == 7
    assert known.price_at(START + 10 * SECOND - 1) == 5


@pytest.mark.parametrize("time", [START - 1, START + 10 * SECOND + 1])
def test_outside_its_span_a_price_is_an_error(time: int) -> None:
    known = series((0, 5), (10, 7))
    with pytest.raises(
        OutsideHistory, match="is known from 2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z"
    ):
        known.price_at(time)
    with pytest.raises(OutsideHistory):
        known.window(min(time, START), max(time, START))


def test_repeated_prices_are_observations_not_changes() -> None:
    assert series((0, 5), (10, 5), (20, 6), (30, 6)).changes == 1


def test_a_single_event_has_a_mean_and_no_duration() -> None:
    alone = series((0, 5))
    assert (alone.seconds_above(1), alone.window(START, START)) == (0.0, alone)


@pytest.mark.parametrize(
    ("times", "prices"), [([], []), ([2, 1], [5, 5]), ([1, 1], [5, 6]), ([1], [0]), ([1, 2], [5])]
)
def test_an_invalid_step_function_is_rejected(times: list[int], prices: list[int]) -> None:
    with pytest.raises(ValueError, match=r"aws/us-east-1/us-east-1a/c4\.xlarge"):
        PriceSeries(market(), np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def test_a_series_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        series((0, 5)).prices[0] = 1


GOOGLE = Market("gcp", "us-east1", "-", "n1")


def test_spans_join_where_they_touch() -> None:
    spans = union([Span(5, 7), Span(0, 2), Span(2, 3), Span(20, 30)], pause=2)
    assert spans == (Span(0, 7), Span(20, 30))
    assert holes(spans) == (Span(7, 20),)
    assert clipped(spans, 6, 25) == (Span(6, 7), Span(20, 25))
    assert held(np.array([-1, 1, 6, 10, 25, 99]), spans).tolist() == [1, 5, 1, 5, 5]
    assert held(np.array([1, 2]), ()).tolist() == [0]


@pytest.mark.parametrize("seed", range(5))
def test_every_figure_agrees_with_a_recomputation_second_by_second(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = START + np.unique(rng.integers(0, 4000, 60)) * SECOND
    edges = START + np.sort(rng.choice(np.arange(1, 4000), 8, replace=False)) * SECOND
    spans = tuple(Span(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))
    prices = rng.integers(1, 9, times.size)
    series = PriceSeries(market(), times, prices, clipped(spans, int(times[0]), int(times[-1])))
    seconds = np.arange(times[0], times[-1], SECOND)
    price = prices[np.searchsorted(times, seconds, "right") - 1]
    seen = np.zeros(seconds.size, dtype=bool)
    for span in spans:
        seen |= (seconds >= span.start) & (seconds < span.end)
    catalog = Catalog(
        prices=(OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START, 4, "a list"),)
    )
    stats = describe(series, catalog)
    assert stats.mean == pytest.approx(price[seen].mean())
    assert stats.median == np.sort(price[seen])[(seen.sum() - 1) // 2]
    assert stats.hours_above_on_demand == pytest.approx((price[seen] > 4).sum() / 3600)
    assert stats.coverage == pytest.approx(seen.mean())
    assert stats.discount == pytest.approx(1 - price[seen].mean() / 4)
    window = 40
    whole = np.array([seen[i : i + window].all() for i in range(seconds.size - window)])
    last = seconds.size - window
    crossed = np.array(
        [price[i + 1 : i + window + 1].max(initial=0) > price[i] for i in range(last)]
    )
    beta = CrossingHistory(series, window * SECOND).at_delta(0).share
    assert beta == pytest.approx(crossed[whole].mean(), abs=0.04)


def test_a_window_that_was_never_observed_as_a_whole_is_too_little_history() -> None:
    times = START + np.arange(10) * HOUR
    spans = tuple(Span(int(time), int(time) + HOUR // 2) for time in times[:-1])
    with pytest.raises(TooLittleHistory, match="was observed without a hole"):
        CrossingHistory(PriceSeries(market(), times, np.ones(10, dtype=np.int64), spans), HOUR)


def test_a_price_before_a_hole_of_five_years_does_not_count_for_them(tmp_path: Path) -> None:
    late = parse_time("2020-01-01")
    lines = ["2015-01-01T00:00:00Z,aws,us-east-1,us-east-1a,m3.large,Linux/UNIX,1.0"]
    lines += [
        f"2020-01-{day:02}T00:00:00Z,aws,us-east-1,us-east-1a,m3.large,Linux/UNIX,0.1"
        for day in (1, 2, 3)
    ]
    store = PriceStore(tmp_path / "prices")
    ingest(store, written(tmp_path / "history.csv", HEADER, *lines))
    (series,) = store.table()
    catalog = Catalog(
        prices=(
            OnDemandPrice("aws", "us-east-1", "m3.large", "linux", late, 133_000_000, "a list"),
        )
    )
    stats = describe(series, catalog)
    assert (stats.mean, stats.hours_above_on_demand) == (1e8, 0.0)
    assert stats.coverage == pytest.approx(2 / 1828)


def test_two_files_with_a_hole_between_them_are_two_spans(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    for days in ((1, 40, 80), (900, 901)):
        rows = [PriceEvent(GOOGLE, START - 1000 * DAY + day * DAY, day) for day in days]
        recording = Recording()
        batch = PriceBatch.of(rows)
        recording.add(batch.markets, batch.codes, batch.times)
        store.commit(FetchedRows(prices=batch, watched=recording.watched()))
    (series,) = store.table()
    assert series.watched == tuple(
        Span(START + (begin - 1000) * DAY, START + (end - 1000) * DAY)
        for begin, end in ((1, 80), (900, 901))
    )


def test_while_its_region_is_recorded_a_market_without_changes_is_watched() -> None:
    other = Market("gcp", "us-east1", "-", "n2")
    recording = Recording()
    months = np.arange(0, 600, 100)
    batch = PriceBatch.of(
        [PriceEvent(other, START + int(day) * DAY, 1) for day in months]
        + [PriceEvent(GOOGLE, START, 1), PriceEvent(GOOGLE, START + 500 * DAY, 2)]
    )
    recording.add(batch.markets, batch.codes, batch.times)
    assert recording.watched()[GOOGLE] == WatchRecord(recorded=(Span(START, START + 500 * DAY),))


def test_a_market_that_aws_no_longer_repeats_was_not_watched() -> None:
    times = START + np.array([*range(30), 40]) * DAY
    assert of_events(market(), times, None) == (
        Span(START, START + 29 * DAY),
        Span(START + 40 * DAY, START + 40 * DAY),
    )
    assert of_events(GOOGLE, times, None) == (Span(START, START + 40 * DAY),)
    provider = WatchRecord(complete=(Span(START, START + 45 * DAY),))
    assert of_events(market(), times, provider) == provider.complete


def test_an_unchanged_fetch_adds_no_row_and_its_time_counts(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    event = PriceEvent(market(), START, 5)
    for day in (1, 2):
        rows = FetchedRows(
            prices=PriceBatch.of([event]),
            watched={market(): WatchRecord((Span(START, START + day * DAY),))},
        )
        store.commit(rows)
    assert store.size()[0] == 1
    series = stored(store, market())
    assert (series.last, series.price_at(START + DAY), len(series)) == (START + 2 * DAY, 5, 2)
    assert describe(series, Catalog()).events == 1
