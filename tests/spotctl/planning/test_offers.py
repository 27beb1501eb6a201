"""Boards and what a job may use of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, Span
from spotctl.files.job.resources import Needs, Resources
from spotctl.files.job.spec import Accelerators, Range
from spotctl.planning.offers import STALE_AFTER, MachineKind, MarketSnapshot, eligible, why_unusable
from spotctl.run.start.stored_facts import market_data
from tests.pricing_data.histories import START, random_batch
from tests.spotctl.planning.worlds import BEGIN, CENT, NOW, catalog, flat, offer, snapshot, spec, table_of


@given(st.integers(0, 50), st.integers(-600, 40_000))
def test_prices_and_ages_are_those_of_each_history(seed: int, seconds: int) -> None:
    table = PriceTable.of(random_batch(seed, 5, 60))
    at = START + seconds * 1_000_000
    found = MarketSnapshot.of(table, catalog(), at)
    for row, series in enumerate(table):
        market = series.market
        assert found.kinds[found.kind[row]] == MachineKind(market.cloud, market.region, market.instance_type)
        before = series.times[series.times <= at]
        if not before.size:
            assert found.age[row] == -1
        else:
            assert found.price[row] == series.prices[before.size - 1]
            assert found.age[row] == (0 if before.size < len(series) else at - series.last)
            known = found.history(row)
            assert (known.market, known.last, known.prices[-1]) == (market, at, found.price[row])
            assert known.first == min(series.first, at - 4 * HOUR)
            assert known.prices[np.isin(known.times, before)].tolist() == series.prices[: before.size].tolist()


def test_a_table_of_histories_is_the_one_that_the_store_would_make() -> None:
    table = PriceTable.of(random_batch(1, 6, 60))
    again = table_of(reversed(list(table)))
    assert again.markets == table.markets
    assert list(again) == list(table)
    assert len(table_of([])) == 0
    assert not eligible(MarketSnapshot.of(table_of([]), catalog(), NOW), np.zeros(0, dtype=bool), spec()).kinds.size


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {"a.large", "a.xlarge", "b.large"}),
        ({"types": ("a.*",)}, {"a.large", "a.xlarge"}),
        ({"types": ("b.large", "a.xlarge")}, {"b.large", "a.xlarge"}),
        ({"needs": Needs(vcpus=Range(8))}, {"a.xlarge"}),
        ({"needs": Needs(memory_gib=Range(1.0, 8.0))}, {"a.large", "b.large"}),
        ({"needs": Needs(accelerators=Accelerators("V100", Range(1)))}, set()),
        ({"regions": ("us-west-2",)}, {"b.large"}),
        ({"clouds": ("gcp",)}, set()),
    ],
)
def test_resources_mean_these_kinds(changes: dict[str, object], kept: set[str]) -> None:
    found = snapshot(
        flat(offer("a.large"), CENT), flat(offer("a.xlarge"), CENT), flat(offer("b.large", region="us-west-2"), CENT)
    )
    resources: Resources = replace(spec().resources, **changes)  # type: ignore[arg-type]
    chosen = eligible(found, found.usable, replace(spec(), resources=resources))
    assert {found.kinds[kind].type for kind in chosen.kinds.tolist()} == kept
    assert chosen.fitting == len(kept)


def test_an_unusable_market_has_a_reason() -> None:
    windows = Market("aws", "us-east-1", "us-east-1b", "a.large", "windows")
    found = snapshot(
        flat(offer("a.large"), CENT),
        flat(offer("a.large", "c"), CENT, until=NOW - STALE_AFTER - HOUR),
        flat(offer("a.large", "d"), CENT, since=NOW + DAY, until=NOW + 2 * DAY),
        flat(offer("a.large", region="eu-west-1"), CENT),
        flat(windows, CENT),
    )
    chosen = eligible(found, found.usable, spec())
    told = {str(market): why for market, why in (why_unusable(found, row, spec()) for row in chosen.unusable.tolist())}
    assert found.usable.sum() == 1
    assert "stale: its last price is 37 hours old" in told[str(offer("a.large", "c"))]
    assert "before the planned moment" in told[str(offer("a.large", "d"))]
    assert "on-demand price of a.large in eu-west-1" in told[str(offer("a.large", region="eu-west-1"))]
    assert "sells windows machines" in told[str(windows)]


def test_a_price_is_not_stale_while_its_history_goes_on() -> None:
    sparse = table_of([flat(offer("a.large"), CENT, since=BEGIN, until=BEGIN + DAY), flat(offer("b.large"), CENT)])
    times = sparse.times.copy()
    times[1] = NOW + DAY
    found = MarketSnapshot.of(replace(sparse, times=times), catalog(), NOW)
    assert found.age[0] == 0
    assert found.usable[0]


def test_a_price_unchanged_for_a_month_is_current_while_its_market_is_watched(tmp_path: Path) -> None:
    """Google changes its prices a few times a year."""
    market, since = offer("a.large"), NOW - 30 * DAY
    store = PriceStore(tmp_path)
    unchanged = PriceBatch.of([PriceEvent(market, since, CENT)])
    store.commit(FetchedRows(prices=unchanged, watched={market: WatchRecord(complete=(Span(since, NOW - HOUR),))}))
    found = MarketSnapshot.of(market_data(Library(store), [spec()]).table, catalog(), NOW)
    assert found.age.tolist() == [HOUR]
    assert found.usable.all()
