"""How Azure is reached."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pricing_data.errors import MissingCredentials

PUBLIC_MANAGEMENT_ENDPOINT = "https://management.azure.com"
PUBLIC_RETAIL_PRICES_URL = "https://prices.azure.com/api/retail/prices"

SIGN_IN = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run `az login`, and set AZURE_SUBSCRIPTION_ID"
)


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Where and how patiently Azure is asked.

    `subscription` falls back on AZURE_SUBSCRIPTION_ID. A `management_endpoint` of plain http:// is used without
    credentials: a token sent in clear could be replayed by whoever reads it. `managed_identity` is for machines inside
    Azure; elsewhere it costs a wait for a metadata server that does not exist (AZURE_TOKEN_CREDENTIALS, if set,
    decides instead). A Retry-After above `longest_wait_seconds` makes the public price list fail at once; the SDK
    obeys any.
    """

    subscription: str | None = None
    management_endpoint: str | None = None
    retail_prices_url: str = PUBLIC_RETAIL_PRICES_URL
    managed_identity: bool = False
    retries: int = 5
    backoff_seconds: float = 0.8
    longest_wait_seconds: float = 120.0
    timeout_seconds: float = 60.0

    def chosen_subscription(self) -> str:
        """The subscription set here or in the environment."""
        chosen = (self.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")).strip()
        if not chosen:
            raise MissingCredentials(f"no Azure subscription is chosen: {SIGN_IN}")
        return chosen

    @property
    def endpoint(self) -> str:
        """The management endpoint in force, without a slash at its end."""
        return (self.management_endpoint or PUBLIC_MANAGEMENT_ENDPOINT).rstrip("/")

    @property
    def sends_tokens(self) -> bool:
        """Whether the management endpoint is protected by TLS, so that a token may travel to it."""
        return self.endpoint.lower().startswith("https://")
