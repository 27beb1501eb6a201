"""The part of the providers' contract that needs no machine that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.base import Payload
from tests.spotctl.clouds.contract import ProviderContract, Setting
from tests.spotctl.clouds.gcp.world import BID, N2, UNKNOWN, world


class TestContract(ProviderContract):
    @pytest.fixture
    def setting(self, tmp_path: Path) -> Iterator[Setting]:
        with world(tmp_path) as made:
            payload = Payload("work", ("/bin/sh", "-c", "exit 3"))
            pause = lambda seconds: time.sleep(min(seconds, 1.0))  # noqa: E731
            yield Setting(made.provider(), N2, BID, UNKNOWN, payload, pause, slack=SECOND, patience_seconds=30)

    # Without an agent, no lease ends a machine; these run on machines that do: see test_machines.py.
    test_a_machine_ends_with_its_lease_without_any_launcher = None  # type: ignore[assignment]
    test_a_lease_that_has_ended_at_the_request = None  # type: ignore[assignment]
