"""Small synthetic markets for replays."""

from __future__ import annotations

import numpy as np

from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND
from tests.pricing_data.histories import START

ON_DEMAND = 1000
BASELINE = Rent(Offer(Market("aws", "us-east-1", "-", "base"), 8.0, ON_DEMAND), 4, None)


def restless(seed: int, hours: int, name: str = "a.large") -> PriceSeries:
    """A price on whole seconds that changes about every ten minutes and sometimes spikes above
    on-demand.
    """
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(30, 1200, hours * 6))
    prices = rng.integers(100, 400, steps.size)
    prices[rng.random(steps.size) < 0.05] = 1500
    times = np.concatenate(([0], steps[steps < hours * 3600], [hours * 3600])) * SECOND + START
    kept = np.concatenate(([200], prices[steps < hours * 3600], [200]))
    return PriceSeries(
        Market("aws", "us-east-1", "us-east-1a", name),
        times.astype(np.int64),
        kept.astype(np.int64),
    )


def offer(series: PriceSeries, nu: float = 4.0) -> Offer:
    return Offer(series.market, nu, ON_DEMAND)


def job(
    offers: tuple[Offer, ...], hours: float = 3.0, start: int = START + 30 * HOUR
) -> ReplayedJob:
    work = BASELINE.machines * BASELINE.offer.nu * hours * HOUR
    return ReplayedJob(start, work, start + int(3 * hours * HOUR), offers, BASELINE, most_nu=48.0)
