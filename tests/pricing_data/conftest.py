"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.store import PriceStore
from tests.pricing_data.histories import START, market, random_batch

LOCAL = Market.parse("local/sim-east/sim-east-a/c4.xlarge")


AZURE = Market.parse("azure/eastus/-/Standard_NC6s_v3")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    store = PriceStore(tmp_path / "prices")
    events = [
        PriceEvent(one, START + step, 5 + step)
        for one in (market(), AZURE, LOCAL)
        for step in range(3)
    ]
    store.commit(FetchedRows(prices=PriceBatch.of(events)))
    return Library(store)


@pytest.fixture
def kept(tmp_path: Path) -> PriceStore:
    store = PriceStore(tmp_path / "prices")
    store.commit(FetchedRows(prices=random_batch(0, markets=3, rows=90)))
    Library(store).keep_statistics()
    return store
