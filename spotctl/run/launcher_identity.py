"""The launcher's identity at object stores: credentials that the clouds' SDKs find here, such as a profile or a
sign-in.

The launcher never queries a metadata service itself: most computers have none, and a run would wait for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError
from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.blobs.identity import AwsKeys

if TYPE_CHECKING:
    from spotctl.clouds.aws.session import AwsSession

KEYS_SECONDS = 900.0
"""How long keys are used before the SDK, which renews them, is asked again."""


class LauncherIdentity:
    """See `StoreIdentity`. The SDKs are imported when they are needed."""

    def aws_keys(self) -> AwsKeys:
        with _refused():
            key, secret, token = self._aws.keys()
        return AwsKeys(key, secret, token, time.time() + KEYS_SECONDS)

    def aws_region(self) -> str:
        named = os.environ.get("AWS_REGION")
        if named:
            return named
        with _refused():
            return self._aws.sign_in() or ""

    def google_token(self) -> tuple[str, float]:
        from spotctl.clouds.gcp.session import storage_token

        with _refused():
            return storage_token()

    def azure_token(self) -> tuple[str, float]:
        from spotctl.clouds.azure.access import AzureSettings
        from spotctl.clouds.azure.session import storage_token

        with _refused():
            return storage_token(AzureSettings())

    @cached_property
    def _aws(self) -> AwsSession:
        from spotctl.clouds.aws.session import AwsSession

        return AwsSession()


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        raise StoreRefused(str(error)) from None


LAUNCHER = LauncherIdentity()
"""The identity of this process, which keeps the credentials that the SDKs have found."""
