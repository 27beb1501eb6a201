"""Who a launcher is to an object store: what the clouds' SDKs find, never a metadata service that
does not answer.
"""

from __future__ import annotations

import time

import pytest
from azure.core.credentials import AccessToken

from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.session import storage_token

pytestmark = pytest.mark.usefixtures("nothing")


def test_a_token_of_azure_is_for_storage() -> None:
    asked: list[tuple[str, ...]] = []

    class Credential:
        def get_token(self, *scopes: str, **_: object) -> AccessToken:
            asked.append(scopes)
            return AccessToken("earned", int(time.time()) + 3600)

    token, seconds = storage_token(AzureSettings(), Credential())
    assert (token, asked) == ("earned", [("https://storage.azure.com/.default",)])
    assert 3500 < seconds <= 3600
