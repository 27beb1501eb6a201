"""How Google Cloud is reached. Imports no SDK."""

from __future__ import annotations

import os
from dataclasses import dataclass


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
    iam_endpoint: str | None = None
    call_timeout_seconds: float = 60.0
    first_retry_seconds: float = 1.0
    retry_deadline_seconds: float = 60.0
    connection_attempts: int = 3

    @property
    def api_key(self) -> str:
        """The key with which the price list is read; empty if there is none, or if a project is set."""
        has_project = self.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        return "" if has_project else os.environ.get("GOOGLE_API_KEY", "").strip()
