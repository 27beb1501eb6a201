"""The launcher at Blob Storage: a token for the sign-in that the SDK finds on this computer."""

from __future__ import annotations

from spotctl.clouds.errors import refused_as_store


class AzureLauncher:
    """See `TokenIdentity`."""

    def token(self) -> tuple[str, float]:
        from spotctl.clouds.azure.cloud import AzureSettings
        from spotctl.clouds.azure.session import storage_token

        with refused_as_store():
            return storage_token(AzureSettings())


LAUNCHER = AzureLauncher()
