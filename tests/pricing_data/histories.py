"""Random price histories for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from pricing_data.fetched_rows import PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.store import PriceStore
from pricing_data.units import SECOND, parse_time

START = parse_time("2026-01-01")


def market(name: str = "c4.xlarge", zone: str = "us-east-1a", os: str = "linux") -> Market:
    return Market("aws", "us-east-1", zone, name, os)


def series(*steps: tuple[int, int], of: Market | None = None) -> PriceSeries:
    """A series from (seconds after the start, nano-dollars)."""
    times = np.array([START + second * SECOND for second, _ in steps], dtype=np.int64)
    return PriceSeries(
        of or market(), times, np.array([price for _, price in steps], dtype=np.int64)
    )


def events(max_size: int = 60) -> st.SearchStrategy[list[PriceEvent]]:
    """Events of a few markets at a few times, so that times and prices often coincide."""
    names = st.sampled_from([market("a.large"), market("b.large"), market("a.large", os="windows")])
    event = st.builds(
        PriceEvent, names, st.integers(0, 30).map(lambda s: START + s * SECOND), st.integers(1, 5)
    )
    return st.lists(event, max_size=max_size)


def random_batch(seed: int, markets: int, rows: int) -> PriceBatch:
    """About `rows` events of `markets` markets, each changing a few times per hour."""
    rng = np.random.default_rng(seed)
    named = tuple(market(f"t{number}.large") for number in range(markets))
    each = rows // markets
    times = START + np.cumsum(rng.integers(1, 1200, (markets, each)), axis=1) * SECOND
    prices = rng.integers(10_000, 900_000, (markets, each)) * 100
    return PriceBatch(
        named,
        np.repeat(np.arange(markets, dtype=np.int64), each),
        times.ravel().astype(np.int64),
        prices.ravel().astype(np.int64),
    )


def stored(store: PriceStore, market: Market) -> PriceSeries:
    """The history of a market that a store has."""
    (history,) = store.table([market])
    return history


def segment_paths(store: PriceStore) -> list[Path]:
    """The files with a store's prices."""
    return store.over_segments(lambda paths, _: paths)
