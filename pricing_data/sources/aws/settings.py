"""`AwsSettings`: what a person may set about fetching from AWS beyond boto3's own environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stamina import RetryingCaller


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """How AWS is asked. Credentials, profile, default region and endpoints are boto3's to find.

    Its own variables name them: `AWS_PROFILE`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_EC2`, `AWS_ENDPOINT_URL_PRICING`.
    `max_attempts` counts the first try. botocore spaces its own retries, of throttling and lost connections;
    `backoff_seconds` is the first wait before what it does not retry: an answer cut short, the Spot Advisor's file.
    """

    spot_advisor_url: str = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
    max_attempts: int = 8
    timeout_seconds: float = 30.0
    backoff_seconds: float = 0.5

    def retrying(self) -> RetryingCaller:
        """Calls a function again, after ever longer waits, while it raises what may pass."""
        from stamina import RetryingCaller

        return RetryingCaller(
            attempts=self.max_attempts,
            timeout=None,
            wait_initial=self.backoff_seconds,
            wait_jitter=self.backoff_seconds,
        )
