"""The launcher at S3: credentials that boto3 finds on this computer, such as a profile."""

from __future__ import annotations

import os
import time
from functools import cached_property
from typing import TYPE_CHECKING

from spotctl.clouds.aws.storage import AwsKeys
from spotctl.clouds.errors import refused_as_store

if TYPE_CHECKING:
    from spotctl.clouds.aws.session import AwsSession

KEYS_SECONDS = 900.0
"""How long keys are used before the SDK, which renews them, is asked again."""


class AwsLauncher:
    """See `AwsIdentity`."""

    def keys(self) -> AwsKeys:
        with refused_as_store():
            key, secret, token = self._session.keys()
        return AwsKeys(key, secret, token, time.time() + KEYS_SECONDS)

    def region(self) -> str:
        named = os.environ.get("AWS_REGION")
        if named:
            return named
        with refused_as_store():
            return self._session.sign_in() or ""

    @cached_property
    def _session(self) -> AwsSession:
        from spotctl.clouds.aws.session import AwsSession

        return AwsSession()


LAUNCHER = AwsLauncher()
