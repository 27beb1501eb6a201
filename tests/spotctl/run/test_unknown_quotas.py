"""For which markets a cloud has not stated its quotas lately."""

from __future__ import annotations

from pathlib import Path

from pricing_data.market import Market
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.quotas import quotas_from
from spotctl.home.wall_clock import wall_us
from spotctl.run.start.launch_plans import unknown_quotas

HERE, ELSEWHERE = (
    Market.parse("gcp/us-central1/-/a2-highgpu-1g"),
    Market.parse("gcp/asia-east1/-/a2-highgpu-1g"),
)


def unknown(home: Path, stated: str) -> set[Market]:
    settings = Settings(home)
    account_quotas.keep(settings, quotas_from(stated), wall_us())
    return unknown_quotas({HERE, ELSEWHERE}, settings)


def test_a_quota_of_all_regions_does_not_stand_for_those_of_a_region(tmp_path: Path) -> None:
    assert unknown(tmp_path, "gcp=4 GPUs, gcp/us-central1=24") == {ELSEWHERE}


def test_a_cloud_without_quotas_of_regions_has_stated_all(tmp_path: Path) -> None:
    assert unknown(tmp_path, "gcp=20 machines") == set()
