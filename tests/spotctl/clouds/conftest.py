"""Fixtures of the tests in this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.servers.aws import AwsWorld, running_aws
from tests.servers.loopback import Reply, Request


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


@dataclass
class WithQuotas:
    """moto has no EC2 quotas; these are served here."""

    below: Any
    vcpus: dict[str, float] = field(
        default_factory=lambda: {"L-34B43A08": 640.0, "L-1216C47A": 64.0}
    )
    refusal: Reply | None = None

    def answer(self, request: Request) -> Reply:
        if request.headers.get("x-amz-target", "").endswith(".GetServiceQuota"):
            if self.refusal is not None:
                return self.refusal
            asked = request.json()
            assert asked["ServiceCode"] == "ec2"
            return Reply.of_json({"Quota": {"Value": self.vcpus[asked["QuotaCode"]]}})
        reply: Reply = self.below.answer(request)
        return reply


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        world.server.api = WithQuotas(world.server.api)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield world
