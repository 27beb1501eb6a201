"""How AWS is reached. Imports no SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stamina import RetryingCaller

PRICE_LIST_REGION: Final = "us-east-1"
"""The Price List is in few regions; each has the prices of all."""


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
