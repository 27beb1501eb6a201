"""Fixtures of the tests in this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def _nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    # moto loads its description of EC2 at the first request, which takes long on a busy computer.
    monkeypatch.setattr("spotctl.clouds.doctor.TIMEOUT_SECONDS", 60.0)
