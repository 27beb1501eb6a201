"""Random markets whose prices change at whole seconds, so that a walk second by second is exact."""

from __future__ import annotations

import numpy as np

from bidbrain.lab.gavel.pricing_strategies import PriceBoard, board_of
from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import SECOND

BEGIN = 1_580_000_000 * SECOND
KINDS = ("K80", "P100", "V100")


def machine(market: Market) -> InstanceType:
    """Types are named after what they are: `V100x4`."""
    accelerator, _, count = market.instance_type.partition("x")
    return InstanceType(market.cloud, market.instance_type, 4, 16.0, accelerator, int(count))


def histories(
    rng: np.random.Generator, seconds: int, markets: int = 6, changes: int = 5
) -> list[PriceSeries]:
    """Markets of two clouds and three regions, each with its own changes between the first and the
    last second.
    """
    found: list[PriceSeries] = []
    for i in range(markets):
        cloud, region = (("aws", "us-east-1"), ("aws", "us-west-1"), ("azure", "eastus"))[i % 3]
        name = f"{KINDS[int(rng.integers(3))]}x{int(rng.choice([1, 1, 2, 8]))}"
        zone = f"{region}{'abc'[int(rng.integers(3))]}" if cloud == "aws" else "-"
        market = Market(cloud, region, zone, name)
        inner = np.sort(rng.choice(np.arange(1, seconds), size=changes, replace=False))
        times = BEGIN + np.concatenate(([0], inner, [seconds])).astype(np.int64) * SECOND
        prices = rng.integers(100_000_000, 3_000_000_000, size=times.size).astype(np.int64)
        if market not in [series.market for series in found]:
            found.append(PriceSeries(market, times, prices))
    return found


def board(rng: np.random.Generator, seconds: int, markets: int = 6) -> PriceBoard:
    """The board of random markets."""
    return board_of(histories(rng, seconds, markets), machine)
