"""Cloud Storage, by what every store must do."""

from __future__ import annotations

import pytest

from spotctl.agent.data import stores
from tests.servers.objects import (
    GoogleDialect,
    ObjectStore,
    bearer,
)
from tests.spotctl.agent.data.test_stores import TOKEN, ObjectSuite


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)


class TestGoogle(ObjectSuite):
    location = "gs://bucket/jobs/a-b"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
        return GoogleDialect("bucket", bearer(TOKEN))

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", f"{url}/storage/v1/")
