"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pricing_data.query import export
from pricing_data.store.table import PriceTable
from tests.bidbrain.lab.backtest.worlds import restless
from tests.bidbrain.lab.regions.worlds import ZONES, flapping

ON_DEMAND = """asof,region,instance_type,on_demand_price
2025-12-01,us-east-1,m4.4xlarge,0.000001
2025-12-01,us-east-1,c4.2xlarge,0.000001
2025-12-01,us-east-1,c4.xlarge,0.0000005
"""


SCENARIO = """
prices: [history.csv]
on_demand: {file: list.csv, asof: 2025-12-01}
train: [2026-01-01T00:00:00Z, 2026-01-05T00:00:00Z]
test: [2026-01-05T00:00:00Z, 2026-01-09T00:00:00Z]
job: {baseline: {type: c4.2xlarge, machines: 4}, hours: [2]}
markets: {types: ["m4.*"]}
reliable: {type: c4.xlarge, machines: 1}
max_vcpus: 64
starts: 5
schemes: [on-demand, standard+agileml, proteus, bound]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(
        PriceTable.merged([table_of(seed, zone) for seed, zone in ((1, "a"), (2, "b"))]),
        tmp_path / "history.csv",
    )
    (tmp_path / "list.csv").write_text(ON_DEMAND)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def table_of(seed: int, zone: str) -> PriceTable:
    from pricing_data.fetched_rows import PriceBatch, PriceEvent
    from pricing_data.market import Market

    known = restless(seed, 24 * 9)
    market = Market("aws", "us-east-1", f"us-east-1{zone}", "m4.4xlarge")
    events = zip(known.times.tolist(), known.prices.tolist(), strict=True)
    return PriceTable.of(PriceBatch.of(PriceEvent(market, time, price) for time, price in events))


TRACE = '{"metadata": {"gap_seconds": 600}, "data": [%s]}'


@pytest.fixture
def traces(folder: Path) -> Path:
    """A trace named for one of the zones, and another of elsewhere."""
    for name, data in (
        ("us-east-1a_none_0", "1, 1, 1, 1, 0, 1, 1, 0"),
        ("elsewhere", "4, 4, 2, 4, 0, 4"),
    ):
        (folder / f"{name}.json").write_text(TRACE % data)
    return folder


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    rows = ["zone,start,gap_seconds,up"]
    for zone, up in zip(ZONES, flapping(7, 4, 200), strict=True):
        rows.append(f"{zone},2026-01-01T00:00:00Z,600,{''.join(map(str, up.astype(int)))}")
    (tmp_path / "up.csv").write_text("\n".join(rows))
    prices = [
        "zone,spot_usd_per_hour,on_demand_usd_per_hour",
        *(f"{zone},1.{i},3" for i, zone in enumerate(ZONES)),
    ]
    (tmp_path / "prices.csv").write_text("\n".join(prices))
    return written(tmp_path, {})


def written(folder: Path, changes: dict[str, object]) -> Path:
    content = {
        "traces": ["up.csv"],
        "prices": "prices.csv",
        "job": {"work_hours": 8, "deadline_hours": 11},
        "starts": {"every": "9h"},
        **changes,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    return path
