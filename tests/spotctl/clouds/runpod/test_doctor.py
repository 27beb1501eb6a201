"""The findings of doctor on an account of RunPod."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import MissingCredentials
from spotctl.clouds.doctor import Level
from spotctl.clouds.errors import NOT_KEPT
from spotctl.clouds.runpod import doctor
from spotctl.home.config import Settings
from tests.spotctl.clouds.runpod.world import World


def test_doctor_shows_the_account_and_its_credit(made: World, tmp_path: Path) -> None:
    settings = Settings(tmp_path, keys={"runpod_url": made.server.url})
    findings = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert {finding.level for finding in findings.values()} == {Level.GOOD}
    assert findings["credit"].detail == "$25.00"
    market = made.market
    market.rent(market.stocks[0], 8, 3.0, {})
    market.balance = 20.0
    findings = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert findings["credit"].is_bad
    assert findings["credit"].detail == "$20.00; what runs costs $24.00 an hour"


def test_doctor_tells_a_wrong_key(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "wrong")
    with pytest.raises(MissingCredentials, match="make a key"):
        list(doctor.findings(Settings(tmp_path, keys={"runpod_url": made.server.url}), NOT_KEPT))
