"""Prices of a real cluster's partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.errors import CloudError
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY
from spotctl.clouds.slurm.partitions import offers
from spotctl.clouds.slurm.prices import SlurmSource
from tests.servers.slurm_cluster import needs_slurm
from tests.spotctl.clouds.slurm.world import SPOT, World

pytestmark = [pytest.mark.slow, needs_slurm]


def test_partitions_have_the_prices_of_the_settings(made: World) -> None:
    settings = replace(made.settings, usd_per_hour={"spot": 0.1, "owner": 0.4})
    task, past = SlurmSource(settings).tasks(FetchRequest(0, DAY))
    (rows,) = task.pull()
    assert rows.prices is not None
    assert (rows.prices.markets, rows.prices.prices.tolist()) == ((SPOT,), [100_000_000])
    assert [(one.instance_type, one.price) for one in rows.on_demand] == [("2c-2g", 400_000_000)]
    assert [row.notes[0].partition(":")[0] for row in past.pull()] == ["slurm"]
    assert [(one.name, one.vcpus) for one in rows.types] == [("2c-2g", 2)]


def test_an_unknown_partition_in_the_settings_is_named(made: World) -> None:
    wrong = replace(made.settings, partitions=("spot", "lab"))
    with pytest.raises(
        CloudError, match=r"'lab' of the .slurm. settings is unknown; the cluster has"
    ):
        offers(wrong)
