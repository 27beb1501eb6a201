"""The contract of providers on machines of the books, which keep their leases as real ones do."""

from __future__ import annotations

import time

import pytest

from pricing_data.units import SECOND
from tests.spotctl.clouds.azure.world import BID, MARKET, UNKNOWN, World
from tests.spotctl.clouds.contract import ProviderContract, Setting
from tests.spotctl.clouds.markets import python


class TestAzure(ProviderContract):
    @pytest.fixture
    def setting(self, world: World) -> Setting:
        payload = python("raise SystemExit(3)")

        def let_pass(_: float) -> None:
            time.sleep(1.0)

        return Setting(
            world.provider(), MARKET, BID, UNKNOWN, payload, let_pass, short_lease=2 * SECOND, slack=2 * SECOND
        )
