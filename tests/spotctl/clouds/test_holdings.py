"""What the disks and addresses of machines add to their price, by the settings of each cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing_data.market import Market
from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.provider import Holdings
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.config import Settings

HOURS = 730
AWS = Market.parse("aws/us-east-1/us-east-1a/c5.xlarge")
GCP = Market.parse("gcp/us-central1/us-central1-a/n2-standard-4")
AZURE = Market.parse("azure/eastus/-/Standard_D4s_v5")


def held(
    market: Market, settings: Settings, *, spot: bool = True, disk_gib: int | None = None
) -> Holdings:
    both = cloud_provider(settings, ("aws", "gcp", "azure"))
    alone = cloud_provider(settings, (market.cloud,))
    found = alone.holdings(market, spot=spot, disk_gib=disk_gib)
    assert both.holdings(market, spot=spot, disk_gib=disk_gib) == found
    return found


def test_a_disk_is_billed_by_its_size(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    settings = Settings(home=tmp_path)
    assert held(AWS, settings, disk_gib=100).disk == pytest.approx(100 * 0.08 / HOURS * 1e9, abs=1)
    assert held(AWS, settings).disk == pytest.approx(30 * 0.08 / HOURS * 1e9, abs=1)
    for gpus in ("p3.2xlarge", "g4dn.xlarge"):
        with_gpus = held(replace(AWS, instance_type=gpus), settings)
        assert with_gpus.disk == pytest.approx(150 * 0.08 / HOURS * 1e9, abs=1)
    for gpus in ("n1-standard-8+1-nvidia-tesla-t4", "g2-standard-4", "a3-highgpu-8g"):
        with_gpus = held(replace(GCP, instance_type=gpus), settings)
        assert with_gpus.disk == pytest.approx(150 * 0.1 / HOURS * 1e9, abs=1)
    assert held(GCP, settings, disk_gib=200).disk == pytest.approx(200 * 0.1 / HOURS * 1e9, abs=1)
    assert held(AZURE, settings).disk <= held(AZURE, settings, disk_gib=500).disk


# A path.
def test_an_address_is_billed_only_where_machines_have_one(tmp_path: Any) -> None:  # noqa: ANN401
    settings = Settings(home=tmp_path)
    assert [held(one, settings).address for one in (AWS, GCP, AZURE)] == [
        5_000_000,
        2_500_000,
        5_000_000,
    ]
    assert held(GCP, settings, spot=False).address == 5_000_000
    private = Settings(
        home=tmp_path,
        tables={
            "aws": AwsMachineSettings(public_ip=False),
            "gcp": GcpMachineSettings(public_ip=False),
            "azure": AzureMachineSettings(public_ip=False, disk_type="UltraSSD_LRS"),
        },
    )
    assert [held(one, private).address for one in (AWS, GCP, AZURE)] == [0, 0, 0]
    assert held(AZURE, private).disk == held(AZURE, settings).disk, (
        "the price of the usual disk stands for an unknown one"
    )
