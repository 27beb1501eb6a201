"""Quotas that clouds stated are kept for a day, and the settings go before them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from

NOW = 1_800_000_000_000_000
STATED = quotas_from("aws/us-east-1/g+vt=64, gcp/us-central1/a2-highgpu=8 GPUs")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", quotas=quotas_from("azure/eastus=100"))


def test_the_settings_state_a_quota_in_place_of_the_cloud(settings: Settings) -> None:
    account_quotas.keep(settings, STATED, NOW)
    own = replace(settings, quotas=quotas_from("aws/us-east-1/g+vt=128"))
    assert account_quotas.known(own, NOW) == (*own.quotas, STATED[1])


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"aws": 3}', '{"a/b/c/d": {"amount": "3", "read": 1}}']
)
def test_a_file_that_cannot_be_read_holds_nothing(settings: Settings, text: str) -> None:
    account_quotas.keep(settings, STATED, NOW)
    Paths(settings.home).quotas.write_text(text)
    assert account_quotas.stated(settings, NOW) == {}
    account_quotas.keep(settings, STATED, NOW)
    assert len(account_quotas.stated(settings, NOW)) == 2


def test_on_demand_machines_have_quotas_of_their_own(settings: Settings) -> None:
    account_quotas.keep(
        settings,
        quotas_from("aws/us-east-1=64, aws/us-east-1 on demand=8, gcp on demand=2 GPUs"),
        NOW,
    )
    assert [str(one) for one in account_quotas.known(settings, NOW, spot=False)] == [
        "aws/us-east-1 on demand=8 vCPUs",
        "gcp on demand=2 GPUs",
    ]
    assert [str(one) for one in account_quotas.known(settings, NOW)] == [
        "azure/eastus=100 vCPUs",
        "aws/us-east-1=64 vCPUs",
    ]
