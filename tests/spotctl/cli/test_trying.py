"""`spotctl try` from its entry point, up to the question whether to rent."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spotctl.home.quotas import Quota, quotas_from
from spotctl.run.start import launch_plans
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.usefixtures("few_windows")

HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"
LISTED = (
    "asof,region,instance_type,on_demand_price,source\n2026-01-01,us-east-1,c6i.large,0.085,a "
    "list\n"
)


class StatesOneQuota:
    """A cloud that only states a quota."""

    def __init__(self, quota: str) -> None:
        self.stated = quotas_from(quota)

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:  # noqa: ARG002
        return self.stated

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _prices(tmp_path: Path) -> None:
    at = (datetime.now(UTC) - timedelta(hours=2)).isoformat(timespec="seconds")
    history, listed = tmp_path / "history.csv", tmp_path / "list.csv"
    history.write_text(f"{HEADER}\n{at},aws,us-east-1,us-east-1a,c6i.large,Linux/UNIX,0.03\n")
    listed.write_text(LISTED)
    assert spotctl("prices", "import", history, "--on-demand", listed).code == 0


def state(monkeypatch: pytest.MonkeyPatch, quota: str) -> None:
    monkeypatch.setattr(launch_plans, "cloud_provider", lambda *_: StatesOneQuota(quota))


def test_a_trial_is_planned_within_the_quotas_that_its_cloud_states(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    state(monkeypatch, "aws/us-east-1/c=0")
    refused = spotctl("try", "aws", "--region", "us-east-1")
    approved(refused)


def test_a_trial_within_its_quotas_is_shown_before_anything_is_rented(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state(monkeypatch, "aws/us-east-1/c=2")
    shown = spotctl("try", "aws", "--region", "us-east-1")
    assert "1 x c6i.large (us-east-1a)" in shown.out
