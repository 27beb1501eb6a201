"""Cloud Storage, by what every store must do."""

from __future__ import annotations

import pytest

from tests.servers.objects import (
    GoogleDialect,
    ObjectStore,
    bearer,
)
from tests.spotctl.agent.data.test_stores import TOKEN, ObjectSuite

pytestmark = pytest.mark.usefixtures("quick")


class TestGoogle(ObjectSuite):
    location = "gs://bucket/jobs/a-b"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
        return GoogleDialect("bucket", bearer(TOKEN))

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", f"{url}/storage/v1/")
