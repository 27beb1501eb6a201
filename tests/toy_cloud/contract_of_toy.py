"""The contract of every provider and every link, for the toy cloud. Run with this folder on
PYTHONPATH.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from toycloud.boxes import Boxes, BoxProvider
from toycloud.price_list import MARKETS, history
from toycloud.provider import ToyProvider
from toycloud.settings import ToySettings

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spotctl.clouds.order_ledger import OrderLedger
from spotctl.clouds.provider import CloudProvider
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.contract import ContainerContract, LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.leaving import kill_all

BEGIN, FAST = parse_time("2026-01-15T00:10:00Z"), 600.0
UNKNOWN = Market("toy", "shelf9-west", "shelf9-west-a", "block.2")


def setting_of(provider: CloudProvider) -> Setting:
    market, list_price = next(iter(MARKETS.items()))
    payload = markets.python("raise SystemExit(3)")
    return Setting(
        provider,
        market,
        list_price,
        UNKNOWN,
        payload,
        lambda seconds: time.sleep(max(seconds / FAST, 0.01)),
        lease=HOUR,
    )


class TestMachines(ProviderContract, LinkContract):
    @pytest.fixture
    def setting(self, tmp_path: Path) -> Iterator[Setting]:
        yield setting_of(ToyProvider(tmp_path / "toy", ToySettings(), begin=BEGIN, speed=FAST))
        kill_all(tmp_path)


class TestBoxes(ProviderContract, LinkContract, ContainerContract):
    """The end of a box is the first list that lacks it."""

    @pytest.fixture
    def setting(self, tmp_path: Path) -> Iterator[Setting]:
        boxes = Boxes(ToyProvider(tmp_path / "toy", ToySettings(), begin=BEGIN, speed=FAST))
        ledger = OrderLedger(tmp_path / "orders", listed_within=MINUTE, gone_after=30 * SECOND)
        yield replace(
            setting_of(BoxProvider(boxes, ledger)), late=HOUR, containers=BoxMarket(boxes)
        )
        kill_all(tmp_path)


@dataclass(frozen=True)
class BoxMarket:
    boxes: Boxes

    def outbid(self, machine: str) -> None:
        self.boxes.outbid(int(machine.removeprefix("toy:")))

    def lose_an_answer(self) -> None:
        self.boxes.lost += 1

    def bought(self) -> int:
        return len(self.boxes.rented)


def test_a_market_has_a_price_for_every_day() -> None:
    market = next(iter(MARKETS))
    prices = history(market, BEGIN, BEGIN + 10 * DAY)
    assert len(prices) == 12
    assert len(set(prices.prices.tolist())) == 5
