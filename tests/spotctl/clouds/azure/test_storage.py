"""Blob Storage, by what every store must do."""

from __future__ import annotations

import pytest

from spotctl.agent.data.locations import store_at
from spotctl.agent.data.stores import (
    StoreRefused,
)
from spotctl.clouds.azure import storage as azure
from tests.servers.objects import (
    AzureDialect,
    ObjectStore,
    bearer,
)
from tests.spotctl.agent.data.test_stores import TOKEN, ObjectSuite

pytestmark = pytest.mark.usefixtures("quick")


class TestAzure(ObjectSuite):
    location = "az://bucket@account/jobs/a-b/"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setattr(azure.MACHINE, "token", lambda: (TOKEN, 3600.0))
        return AzureDialect("bucket", bearer(TOKEN, x_ms_version="2023-11-03"))

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", url)

    def test_the_account_must_be_named(self) -> None:
        with pytest.raises(StoreRefused, match="az://bucket@ACCOUNT"):
            store_at("az://bucket/x")
