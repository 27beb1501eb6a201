from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.stats import describe
from pricing_data.units import DAY, HOUR, SECOND, Span
from tests.pricing_data.histories import START, market, series
from tests.pricing_data.test_series import by_seconds

EMPTY = Catalog()


def on_demand(price: int) -> Catalog:
    return Catalog(prices=(OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START, price, "list"),))


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=2, max_size=15))
def test_the_figures_equal_a_count_of_seconds(shape: dict[int, int]) -> None:
    known = series(*sorted(shape.items()))
    reason = by_seconds(known)
    found = describe(known, on_demand(7))
    spent = Counter(reason)
    at_or_below = [
        price for price in sorted(spent) if 2 * sum(n for p, n in spent.items() if p <= price) >= len(reason)
    ]
    assert found.median == at_or_below[0]
    assert found.hours_above_on_demand == pytest.approx(sum(p > 7 for p in reason) / 3600)
    assert (found.events, found.lowest, found.highest) == (len(shape), min(shape.values()), max(shape.values()))
    assert found.discount == pytest.approx(1 - sum(reason) / len(reason) / 7)


def test_changes_and_spikes_are_counted_by_the_day() -> None:
    calm, spike = 10, 21
    steps = [(0, calm), (3600, spike), (3700, calm), (7200, 20), (9000, 20), (10_000, spike), (172_800, calm)]
    found = describe(series(*steps[:-1], (100_000, calm), (172_800, calm)), EMPTY)
    assert found.changes_per_day == pytest.approx(5 / 2)
    assert found.spikes_per_day == 0  # its median is the spike's own price here
    calmer = describe(
        series((0, calm), (1000, spike), (1100, calm), (50_000, spike), (50_100, calm), (86_400, calm)), EMPTY
    )
    assert calmer.spikes_per_day == pytest.approx(2)


@pytest.mark.parametrize(
    ("top", "catalog", "outliers"),
    [(200, EMPTY, 0), (201, EMPTY, 1), (101, on_demand(10), 1), (100, on_demand(10), 0), (201, on_demand(1000), 1)],
)
def test_an_outlier_is_above_20_medians_or_10_times_on_demand(top: int, catalog: Catalog, outliers: int) -> None:
    assert describe(series((0, 10), (1000, top), (1001, 10), (2000, 10)), catalog).outliers == outliers


def test_an_unknown_on_demand_price_is_unknown_and_not_0() -> None:
    found = describe(series((0, 10)), EMPTY)
    assert (found.on_demand, found.discount, found.hours_above_on_demand) == (None, None, None)


def test_age_is_counted_from_the_last_event() -> None:
    assert describe(series((0, 10), (60, 10)), EMPTY).age_seconds(START + HOUR) == 3540


def test_the_on_demand_price_comes_from_the_nearest_list() -> None:
    lists = [
        OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START + days * DAY, 1000 + days, "list")
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
