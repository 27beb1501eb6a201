"""How each cloud is reached. Imports no SDK."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.errors import MissingCredentials
from spotctl.clouds.api_calls import is_plain_http

if TYPE_CHECKING:
    from stamina import RetryingCaller

AZURE_SIGN_IN = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run `az login`, and set AZURE_SUBSCRIPTION_ID"
)
_AZURE_MANAGEMENT_ENDPOINT = "https://management.azure.com"


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Retries and timeouts for AWS. boto3 finds credentials, profile, default region and endpoints.

    Its own variables name them: `AWS_PROFILE`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_EC2`, `AWS_ENDPOINT_URL_PRICING`.
    `max_attempts` includes the first attempt. botocore retries throttling and lost connections with its own delays;
    `backoff_seconds` is the first delay before other retries: of a truncated answer, or of the Spot Advisor's file.
    """

    price_list_url: str = "https://pricing.us-east-1.amazonaws.com"
    spot_advisor_url: str = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
    max_attempts: int = 8
    timeout_seconds: float = 30.0
    backoff_seconds: float = 0.5

    def retrying(self) -> RetryingCaller:
        """Retries a function with growing delays."""
        from stamina import RetryingCaller

        return RetryingCaller(
            attempts=self.max_attempts,
            timeout=None,
            wait_initial=self.backoff_seconds,
            wait_jitter=self.backoff_seconds,
        )


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """Project, endpoints, retries and timeouts for Google Cloud; `None` means the SDK's default.

    The project defaults to `GOOGLE_CLOUD_PROJECT`, then to that of the default credentials. An endpoint that starts
    with `http://` is called without credentials. A throttled or failed call is retried after `first_retry_seconds`,
    then with growing delays, until `retry_deadline_seconds` have passed; a server that accepts no connection is given
    up after `connection_attempts`.
    """

    project: str | None = None
    compute_endpoint: str | None = None
    billing_endpoint: str | None = None
    resource_manager_endpoint: str | None = None
    call_timeout_seconds: float = 60.0
    first_retry_seconds: float = 1.0
    retry_deadline_seconds: float = 60.0
    connection_attempts: int = 3

    @property
    def api_key(self) -> str:
        """The key with which the price list is read; empty if there is none, or if a project is set."""
        has_project = self.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        return "" if has_project else os.environ.get("GOOGLE_API_KEY", "").strip()


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
