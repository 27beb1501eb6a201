"""Small markets and jobs to plan for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, NANOS_PER_DOLLAR, parse_time
from spotctl.files.job.programs import Command, Stop, Training
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes
from spotctl.planning.offers import MarketSnapshot

BEGIN = parse_time("2026-01-01")
NOW = BEGIN + 10 * DAY
TYPES = {"a.large": 4, "a.xlarge": 8, "b.large": 4, "b.huge": 64}
CENT = NANOS_PER_DOLLAR // 100


def offer(name: str, zone: str = "a", region: str = "us-east-1", cloud: str = "aws") -> Market:
    return Market(cloud, region, f"{region}{zone}", name)


def flat(market: Market, price: int, until: int = NOW, since: int = BEGIN) -> PriceSeries:
    """A price that is repeated once a day and never moves."""
    times = np.unique(np.append(np.arange(since, until, DAY), until)).astype(np.int64)
    return PriceSeries(market, times, np.full(times.size, price, dtype=np.int64))


def spiky(market: Market, low: int, high: int, every: int = 4 * HOUR) -> PriceSeries:
    """Half an hour of a high price in so much time; low at the end."""
    begins = np.arange(BEGIN, NOW - every, every, dtype=np.int64)
    times = np.concatenate(
        [np.stack([begins, begins + every - HOUR // 2], axis=1).ravel(), [NOW - HOUR // 4, NOW]]
    )
    prices = np.concatenate([np.tile([low, high], begins.size), [low, low]])
    return PriceSeries(market, times.astype(np.int64), prices.astype(np.int64))


def catalog() -> Catalog:
    """The types in two regions, at 5 cents a vCPU-hour."""
    clouds, regions = ("aws", "local"), ("us-east-1", "us-west-2")
    types = tuple(
        InstanceType(cloud, name, cpus, 2.0 * cpus)
        for cloud in clouds
        for name, cpus in TYPES.items()
    )
    prices = tuple(
        OnDemandPrice(cloud, region, name, "linux", BEGIN, 5 * CENT * cpus, "a list")
        for cloud in clouds
        for region in regions
        for name, cpus in TYPES.items()
    )
    return Catalog(types, prices)


def table_of(histories: Iterable[PriceSeries]) -> PriceTable:
    """A table of the histories of different markets."""
    ordered = sorted(histories, key=lambda series: str(series.market))
    lengths = [len(series) for series in ordered]
    return PriceTable(
        tuple(series.market for series in ordered),
        np.cumsum([0, *lengths], dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=np.int64), *(series.times for series in ordered)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(series.prices for series in ordered)]),
    )


def snapshot(*histories: PriceSeries, at: int = NOW) -> MarketSnapshot:
    return MarketSnapshot.of(table_of(histories), catalog(), at)


def spec(
    name: str = "job", machines: tuple[int, int] = (1, 8), reliable: int = 0, cloud: str = "aws"
) -> JobSpec:
    """A trainer of 320 units of work; a.large does 4 an hour."""
    resources = Resources((cloud,), Range(*machines), Reliable(reliable))
    training = Training("mf", Stop(clocks=320))
    return JobSpec(
        name,
        training,
        resources,
        Path("/nowhere"),
        throughputs={"a.large": 4.0},
        strategy="standard+agileml",
    )


def gang(nodes: int) -> JobSpec:
    return replace(
        spec(machines=(nodes, nodes)),
        program=Command("true", Nodes(nodes, nodes)),
        strategy="standard+checkpoint",
    )
