"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pricing_data.series import PriceSeries
from pricing_data.units import format_time, format_usd
from tests.bidbrain.eviction.worlds import moody
from tests.spotctl.command_line import spotctl


def imported(tmp_path: Path, *histories: PriceSeries, on_demand: str = "0.02") -> None:
    lines = ["timestamp,cloud,region,zone,instance_type,product,spot_price"]
    for one in histories:
        market = one.market
        name = f"{market.cloud},{market.region},{market.zone},{market.instance_type},Linux/UNIX"
        lines += [
            f"{format_time(int(time))},{name},{format_usd(int(price))}"
            for time, price in zip(one.times, one.prices, strict=True)
        ]
    (tmp_path / "prices.csv").write_text("\n".join(lines) + "\n")
    types = dict.fromkeys(one.market.instance_type for one in histories)
    rows = [f"2026-01-05,us-east-1,{name},{on_demand},a list" for name in types]
    (tmp_path / "list.csv").write_text(
        "\n".join(["asof,region,instance_type,on_demand_price,source", *rows]) + "\n"
    )
    ended = spotctl(
        "prices", "import", tmp_path / "prices.csv", "--on-demand", tmp_path / "list.csv"
    )
    assert ended.code == 0, ended.err


@pytest.fixture
def moods(tmp_path: Path) -> list[PriceSeries]:
    rng = np.random.default_rng(4)
    histories = [moody(rng, f"t{i}.large", 11) for i in range(6)]
    imported(tmp_path, *histories)
    return histories
