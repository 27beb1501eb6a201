"""What a cloud has stated."""

from __future__ import annotations

from pathlib import Path

from pricing_data.units import DAY, HOUR
from spotctl.clouds.wiring import library
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.quotas import quotas_from
from spotctl.run.start.stored_facts import read_account
from tests.spotctl.home.test_account_quotas import NOW, STATED


def test_what_a_cloud_stated_holds_for_a_day(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", quotas=quotas_from("azure/eastus=100"))
    account_quotas.keep(settings, STATED, NOW)
    account_quotas.keep(settings, quotas_from("aws/us-east-1/g+vt=32"), NOW + HOUR)
    known = account_quotas.known(settings, NOW + HOUR)
    assert set(known) == {*settings.quotas, STATED[1], *quotas_from("aws/us-east-1/g+vt=32")}
    assert len(account_quotas.known(settings, NOW + DAY)) == 2
    assert account_quotas.known(settings, NOW + DAY + HOUR) == settings.quotas
    assert set(read_account(settings, NOW + HOUR).left(library(settings).catalog)) == set(known)
