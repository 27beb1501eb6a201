from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.fetched_rows import PriceBatch
from pricing_data.market import Market
from pricing_data.sources.files import read
from pricing_data.stats import describe, find_gaps
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, SECOND, Span, format_time
from tests.pricing_data.histories import START, market, series
from tests.pricing_data.test_series import by_seconds

EMPTY = Catalog()


def on_demand(price: int) -> Catalog:
    return Catalog(
        prices=(OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START, price, "list"),)
    )


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=2, max_size=15))
def test_the_figures_equal_a_count_of_seconds(shape: dict[int, int]) -> None:
    known = series(*sorted(shape.items()))
    reason = by_seconds(known)
    found = describe(known, on_demand(7))
    spent = Counter(reason)
    at_or_below = [
        price
        for price in sorted(spent)
        if 2 * sum(n for p, n in spent.items() if p <= price) >= len(reason)
    ]
    assert found.median == at_or_below[0]
    assert found.hours_above_on_demand == pytest.approx(sum(p > 7 for p in reason) / 3600)
    assert (found.events, found.lowest, found.highest) == (
        len(shape),
        min(shape.values()),
        max(shape.values()),
    )
    assert found.discount == pytest.approx(1 - sum(reason) / len(reason) / 7)


def test_changes_and_spikes_are_counted_by_the_day() -> None:
    calm, spike = 10, 21
    steps = [
        (0, calm),
        (3600, spike),
        (3700, calm),
        (7200, 20),
        (9000, 20),
        (10_000, spike),
        (172_800, calm),
    ]
    found = describe(series(*steps[:-1], (100_000, calm), (172_800, calm)), EMPTY)
    assert found.changes_per_day == pytest.approx(5 / 2)
    assert found.spikes_per_day == 0  # its median is the spike's own price here
    calmer = describe(
        series(
            (0, calm), (1000, spike), (1100, calm), (50_000, spike), (50_100, calm), (86_400, calm)
        ),
        EMPTY,
    )
    assert calmer.spikes_per_day == pytest.approx(2)


@pytest.mark.parametrize(
    ("top", "catalog", "outliers"),
    [
        (200, EMPTY, 0),
        (201, EMPTY, 1),
        (101, on_demand(10), 1),
        (100, on_demand(10), 0),
        (201, on_demand(1000), 1),
    ],
)
def test_an_outlier_is_above_20_medians_or_10_times_on_demand(
    top: int, catalog: Catalog, outliers: int
) -> None:
    assert (
        describe(series((0, 10), (1000, top), (1001, 10), (2000, 10)), catalog).outliers == outliers
    )


def test_an_unknown_on_demand_price_is_unknown_and_not_0() -> None:
    found = describe(series((0, 10)), EMPTY)
    assert (found.on_demand, found.discount, found.hours_above_on_demand) == (None, None, None)


def test_age_is_counted_from_the_last_event() -> None:
    assert describe(series((0, 10), (60, 10)), EMPTY).age_seconds(START + HOUR) == 3540


def test_the_on_demand_price_comes_from_the_nearest_list() -> None:
    lists = [
        OnDemandPrice(
            "aws", "us-east-1", "c4.xlarge", "linux", START + days * DAY, 1000 + days, "list"
        )
        for days in (-200, 10)
    ]
    found = describe(series((0, 10), (60, 10)), Catalog(prices=tuple(lists)))
    assert found.on_demand == lists[1]
    assert found.market == market()
    assert found.last - found.first == 60 * SECOND


def test_the_price_that_is_assumed_at_the_start_of_a_window_is_not_counted() -> None:
    history = series((0, 9000), (400, 20), (500, 21), (600, 22))
    times = history.times
    holed = replace(history, watched=(Span(int(times[1]), int(times[3])),))
    found = describe(holed.window(int(times[0]) + SECOND, holed.last), Catalog())
    assert (found.highest, found.outliers, found.spikes_per_day) == (22, 0, 0.0)
    assert found.changes_per_day == 2 / max(found.observed / DAY, 1 / 24)


def daily(
    silent: dict[int, tuple[int, int]], markets: int = 4, days: int = 30, ends: int | None = None
) -> PriceTable:
    """Markets that are seen once a day, except on some days."""
    named = tuple(Market("aws", "us-east-1", "-", f"t{number}.large") for number in range(markets))
    rows = [
        (code, START + day * DAY + code * HOUR)
        for code in range(markets)
        for day in range(days)
        if not silent.get(code, (0, 0))[0] < day < silent.get(code, (0, 0))[1]
        if not (code == 0 and ends is not None and day > ends)
    ]
    codes, times = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return PriceTable.of(PriceBatch(named, codes, times, np.full(len(rows), 5, dtype=np.int64)))


def test_a_market_seen_daily_has_no_gaps() -> None:
    report = find_gaps(daily({}), START + 30 * DAY)
    assert (report.seams, report.gaps, report.stale) == ((), (), ())


def test_one_silent_market_is_a_gap_of_its_own() -> None:
    report = find_gaps(daily({1: (10, 13)}), START + 30 * DAY)
    assert [(str(gap.market), gap.start, gap.end) for gap in report.gaps] == [
        ("aws/us-east-1/-/t1.large", START + 10 * DAY + HOUR, START + 13 * DAY + HOUR)
    ]
    assert report.seams == ()


def test_a_silence_of_half_a_region_is_a_seam() -> None:
    report = find_gaps(daily({0: (10, 13), 2: (10, 14), 3: (20, 23)}), START + 30 * DAY)
    seam = report.seams[0]
    assert len(report.seams) == 1
    assert (seam.start, seam.end, seam.silent, seam.markets) == (
        START + 10 * DAY + 2 * HOUR,
        START + 13 * DAY,
        2,
        4,
    )
    assert len(report.gaps) == 3


def test_a_market_that_stopped_is_stale() -> None:
    report = find_gaps(daily({}, ends=20), START + 30 * DAY)
    assert [(str(one.market), one.start) for one in report.stale] == [
        ("aws/us-east-1/-/t0.large", START + 20 * DAY)
    ]


def test_staleness_is_measured_against_now() -> None:
    assert len(find_gaps(daily({}), START + 40 * DAY).stale) == 4


def test_a_market_recorded_only_on_changes_may_be_silent() -> None:
    monthly = np.arange(12, dtype=np.int64) * 30 * DAY + START
    batch = PriceBatch(
        (Market("gcp", "us-east1", "-", "n1"),), np.zeros(12, dtype=np.int64), monthly, monthly
    )
    assert find_gaps(PriceTable.of(batch), START).gaps == ()


def test_the_seam_in_the_2020_file_is_found(shared_data: Path) -> None:
    path = shared_data / "prices" / "aws_sa-east-1_2019-12_2020-06.csv.gz"
    report = find_gaps(
        PriceTable.of(PriceBatch.joined(portion.fetched.prices for portion in read(path))), START
    )
    assert [
        (format_time(seam.start)[:10], format_time(seam.end)[:10]) for seam in report.seams
    ] == [("2020-03-29", "2020-03-31")]
