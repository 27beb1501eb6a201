"""The account, its credit and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import MissingCredentials
from spotctl.clouds.doctor import Level
from spotctl.clouds.errors import NOT_KEPT
from spotctl.clouds.vast import doctor
from spotctl.home.config import Settings
from tests.servers.loopback import Fault, LoopbackServer, Reply


def test_doctor_shows_the_account_and_its_credit(server: LoopbackServer, tmp_path: Path) -> None:
    settings = Settings(tmp_path, keys={"vast_url": server.url})
    found = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert {finding.level for finding in found.values()} == {Level.GOOD}
    assert found["credit"].detail.startswith("$25.00")
    server.faults.append(Fault("users", Reply.of_json({"id": 1, "balance": 0.2}, 200)))
    found = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert found["credit"].is_bad


def test_doctor_tells_a_wrong_key(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "wrong")
    with pytest.raises(MissingCredentials, match="Invalid user key; make a key"):
        list(doctor.findings(Settings(tmp_path, keys={"vast_url": server.url}), NOT_KEPT))
