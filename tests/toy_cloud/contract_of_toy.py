"""The contract of every provider and every link, for the toy cloud. Run with this folder on PYTHONPATH."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toycloud.price_list import MARKETS, history
from toycloud.provider import ToyProvider
from toycloud.settings import ToySettings

from pricing_data.market import Market
from pricing_data.units import DAY, parse_time
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.leaving import kill_all

BEGIN, FAST = parse_time("2026-01-15T00:10:00Z"), 600.0
UNKNOWN = Market("toy", "shelf9-west", "shelf9-west-a", "block.2")


class TestContract(ProviderContract, LinkContract):
    @pytest.fixture
    def setting(self, tmp_path: Path) -> Iterator[Setting]:
        provider = ToyProvider(tmp_path / "toy", ToySettings(), begin=BEGIN, speed=FAST)
        market, list_price = next(iter(MARKETS.items()))
        payload = markets.python("raise SystemExit(3)")
        yield Setting(
            provider, market, list_price, UNKNOWN, payload, lambda seconds: time.sleep(max(seconds / FAST, 0.01))
        )
        kill_all(tmp_path)


def test_a_market_has_a_price_for_every_day() -> None:
    market = next(iter(MARKETS))
    prices = history(market, BEGIN, BEGIN + 10 * DAY)
    assert len(prices) == 12
    assert len(set(prices.prices.tolist())) == 5
