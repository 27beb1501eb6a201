"""How Azure is reached. Imports no SDK."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pricing_data.errors import MissingCredentials
from spotctl.clouds.errors import is_plain_http

AZURE_SIGN_IN = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run `az login`, and set AZURE_SUBSCRIPTION_ID"
)
_AZURE_MANAGEMENT_ENDPOINT = "https://management.azure.com"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Subscription, endpoints, retries and timeouts for Azure.

    `subscription` defaults to AZURE_SUBSCRIPTION_ID. A `management_endpoint` that starts with `http://` is called
    without credentials. `managed_identity` is for machines inside Azure; elsewhere it waits for a metadata server that
    does not exist (AZURE_TOKEN_CREDENTIALS, if set, decides instead). A Retry-After above `longest_wait_seconds` makes
    the public price list fail at once; the SDK obeys any.
    """

    subscription: str | None = None
    management_endpoint: str | None = None
    retail_prices_url: str = "https://prices.azure.com/api/retail/prices"
    managed_identity: bool = False
    retries: int = 5
    backoff_seconds: float = 0.8
    longest_wait_seconds: float = 120.0
    timeout_seconds: float = 60.0

    def chosen_subscription(self) -> str:
        """The subscription set here or in the environment."""
        chosen = (self.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")).strip()
        if not chosen:
            raise MissingCredentials("no Azure subscription is set", AZURE_SIGN_IN)
        return chosen

    @property
    def endpoint(self) -> str:
        """The management endpoint in use, without a trailing slash."""
        return (self.management_endpoint or _AZURE_MANAGEMENT_ENDPOINT).rstrip("/")

    @property
    def sends_tokens(self) -> bool:
        """Whether TLS protects the management endpoint, so that a token may be sent to it."""
        return not is_plain_http(self.endpoint)
