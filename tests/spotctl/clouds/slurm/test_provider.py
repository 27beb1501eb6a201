"""The contracts of providers and of links, for jobs of a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pricing_data.units import SECOND
from tests.servers.slurm_cluster import needs_slurm
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.markets import python
from tests.spotctl.clouds.slurm.world import BID, SPOT, UNKNOWN, World
from tests.spotctl.clouds.test_contract import a_second

pytestmark = [pytest.mark.slow, needs_slurm]


@pytest.fixture
def setting(made: World) -> Iterator[Setting]:
    with closing(made.provider()) as provider:
        yield Setting(
            provider,
            SPOT,
            BID,
            UNKNOWN,
            python("raise SystemExit(3)"),
            a_second,
            lease=12 * SECOND,
            short_lease=5 * SECOND,
            slack=20 * SECOND,
            late=120 * SECOND,
            patience_seconds=300.0,
        )


class TestMachines(ProviderContract):
    """Jobs, and what becomes of them."""


class TestLinks(LinkContract):
    """Agents on nodes, over TLS."""
