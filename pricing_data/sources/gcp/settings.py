"""`GcpSettings`: how Google Cloud is reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """How Google Cloud is reached; `None` leaves the choice to the SDK's own configuration.

    `project` is otherwise `GOOGLE_CLOUD_PROJECT` or the project of the default credentials. An endpoint that starts
    with `http://` is called without credentials: a token sent over plain HTTP can be read and reused by anyone on the
    way. A call that is throttled or breaks is repeated after `first_retry_seconds`, then ever more rarely, until
    `retry_deadline_seconds` are over.
    """

    project: str | None = None
    compute_endpoint: str | None = None
    billing_endpoint: str | None = None
    call_timeout_seconds: float = 60.0
    first_retry_seconds: float = 1.0
    retry_deadline_seconds: float = 60.0
