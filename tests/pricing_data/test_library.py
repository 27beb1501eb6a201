"""Kept statistics say what the prices say, after every kind of change."""

from __future__ import annotations

import pytest

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.errors import BadInput, UnknownMarket
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, SECOND, Span
from tests.pricing_data.conftest import AZURE, LOCAL
from tests.pricing_data.histories import START, market, stored


def test_a_stored_local_market_replaces_the_shipped_one(library: Library) -> None:
    assert len(library.series(LOCAL)) == len(next(iter(library.table([LOCAL])))) == 3
    other = Market.parse("local/sim-west/sim-west-a/c4.xlarge")
    assert len(library.series(other)) > 100
    with pytest.raises(UnknownMarket, match=r"no price history of aws/.*spotctl lab prices ls"):
        library.series(market("none.large"))


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection("azure/us_east/-/Standard_NC6s_v3"), [AZURE]),
        (Selection(regions=("us_east",)), [AZURE]),
        (Selection(regions=("US-EAST-1",)), [market()]),
        (Selection(clouds=("AWS",)), [market()]),
        (Selection(accelerator="v100"), [AZURE]),
        (Selection("aws", vcpus=(4, 4)), [market()]),
        (Selection("aws", vcpus=(5, 9)), []),
        (Selection(types=("c4.*",)), [market(), LOCAL]),
    ],
)
def test_markets_match_common_spellings(
    library: Library, selection: Selection, found: list[Market]
) -> None:
    assert [one for one in library.select(selection) if one in (market(), AZURE, LOCAL)] == found


def test_an_unknown_cloud_is_rejected() -> None:
    with pytest.raises(
        BadInput, match="cloud 'ibm' is not one of aws, gcp, azure, slurm, vast, runpod, local"
    ):
        Selection(clouds=("ibm",))


DOLLAR = 1_000_000_000
CHANGED = market("t0.large")
NEXT = PriceEvent(CHANGED, START + 100 * HOUR, DOLLAR)


def assert_agrees(store: PriceStore) -> None:
    library = Library(store)
    from_rows = [describe(series, library.catalog) for series in store.table()]
    assert library.statistics(store.markets()) == from_rows
    assert library.statistics([CHANGED]) == [one for one in from_rows if one.market == CHANGED]


def listed(price: int) -> OnDemandPrice:
    return OnDemandPrice(
        CHANGED.cloud, CHANGED.region, CHANGED.instance_type, CHANGED.os, START, price, "a list"
    )


@pytest.mark.parametrize(
    "change",
    [
        FetchedRows(prices=PriceBatch.of([NEXT])),
        FetchedRows(prices=PriceBatch.of([NEXT._replace(market=market("new.large"))])),
        FetchedRows(watched={CHANGED: WatchRecord(complete=(Span(START, START + 900 * HOUR),))}),
        FetchedRows(on_demand=(listed(1_000),)),
        FetchedRows(),
    ],
    ids=["a later price", "a new market", "longer observation", "an on-demand price", "nothing"],
)
@pytest.mark.parametrize("kept_again", [False, True], ids=["old", "kept again"])
def test_statistics_follow_a_change(
    kept: PriceStore, change: FetchedRows, *, kept_again: bool
) -> None:
    kept.commit(change)
    if kept_again:
        Library(kept).keep_statistics()
    assert_agrees(kept)


def test_statistics_follow_a_correction_and_a_merge(kept: PriceStore) -> None:
    series = stored(kept, CHANGED)
    kept.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(CHANGED, series.first, DOLLAR)])))
    assert_agrees(kept)
    Library(kept).keep_statistics()
    kept.compact()
    assert_agrees(kept)
    assert Library(kept).statistics([CHANGED])[0].highest == DOLLAR


def test_kept_statistics_are_shown_without_a_look_at_the_prices(kept: PriceStore) -> None:
    expected = Library(kept).statistics(kept.markets())
    for segment in kept.root.glob("prices-*"):
        segment.write_bytes(b"")
    assert Library(kept).statistics([one.market for one in expected]) == expected


def test_an_on_demand_price_of_another_catalog_is_not_mixed_in(kept: PriceStore) -> None:
    """As after an upgrade, whose catalog has newer list prices."""
    library = Library(kept)
    library.catalog = Catalog(prices=(listed(2 * SECOND),))
    [one] = library.statistics([CHANGED])
    assert one.on_demand is not None
    assert one == describe(stored(kept, CHANGED), library.catalog)
