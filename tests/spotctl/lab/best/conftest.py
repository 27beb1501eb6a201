"""Fixtures of the tests in this folder."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing_data.availability import Interruption
from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.units import DAY
from tests.spotctl.command_line import spotctl

_HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"


_PRICES = """
aws,us-east-1,us-east-1a,p4d.24xlarge,Linux/UNIX,12.0
aws,us-east-1,us-east-1b,p4d.24xlarge,Linux/UNIX,11.0
aws,us-east-1,us-east-1b,p4d.24xlarge,Windows,1.0
aws,us-east-1,us-east-1a,c6i.large,Linux/UNIX,0.03
gcp,us-central1,,a2-highgpu-8g,,9.6
gcp,us-central1,,a2-highgpu-4g,,4.0
gcp,us-central1,,a2-ultragpu-8g,,13.0
azure,us_east,,Standard_ND96asr_v4,,10.4
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def prices(tmp_path: Path, home: Path) -> None:
    at = (datetime.now(UTC) - timedelta(hours=2)).isoformat(timespec="seconds")
    lines = [f"{at},{line}" for line in _PRICES.split()]
    lines.append("2016-02-25T00:35:34Z,aws,eu-west-1,eu-west-1a,p4d.24xlarge,Linux/UNIX,0.5")
    (tmp_path / "now.csv").write_text("\n".join([_HEADER, *lines]))
    assert spotctl("prices", "import", tmp_path / "now.csv").code == 0
    now = time.time_ns() // 1000
    rates = [
        Interruption(
            Market.parse("azure/eastus/-/Standard_ND96asr_v4"),
            "eviction-rate",
            now - DAY,
            0.05,
            0.1,
            "test",
        ),
        Interruption(
            Market.parse("gcp/us-central1/-/a2-highgpu-8g"),
            "preemption-rate",
            now - DAY,
            0.9,
            0.9,
            "test",
        ),
        Interruption(
            Market.parse("aws/us-east-1/-/p4d.24xlarge"),
            "monthly-bucket",
            now - DAY,
            0.2,
            1.0,
            "test",
        ),
        Interruption(
            Market.parse("aws/us-west-2/-/p4d.24xlarge"), "saving", now - DAY, 0.7, 0.7, "test"
        ),
        Interruption(
            Market.parse("aws/us-east-1/-/p4d.24xlarge"), "saving", now - DAY, 0.7, 0.7, "test"
        ),
    ]
    PriceStore(home / "prices").commit(FetchedRows(interruptions=tuple(rates)))
