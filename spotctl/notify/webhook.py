"""The way to a webhook. A message that cannot be delivered costs a remark, never the run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotctl.notify.notice import Notice
from spotctl.notify.shapes import body

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a receiver is waited for, and how often it is asked."""

    seconds: float = 10.0
    attempts: int = 3
    first_pause: float = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a message. The host alone is named: whoever knows a webhook's path can write to it."""

    host: str
    failure: str = ""

    @property
    def words(self) -> str:
        """As a line of a log."""
        return f"{self.host} could not be told: {self.failure}" if self.failure else f"told {self.host}"


def post(notice: Notice, webhook: str, patience: Patience | None = None) -> Delivery:
    """Posts a notice to an address, or to the one in a variable; never raises for what receiver or network do."""
    import httpx
    import stamina

    url = os.environ.get(webhook[1:], "") if webhook.startswith("$") else webhook
    if not url:
        return Delivery(webhook, f"{webhook[1:]} is not in the environment")
    given, host = patience or Patience(), urlsplit(url).netloc
    try:
        for attempt in stamina.retry_context(
            on=_may_pass,
            attempts=given.attempts,
            wait_initial=given.first_pause,
            wait_max=8 * given.first_pause,
            timeout=None,
        ):
            with attempt:
                # A redirect is not followed: the message is meant for nobody else.
                httpx.post(url, json=body(notice, url), timeout=given.seconds).raise_for_status()
    except httpx.HTTPStatusError as error:
        return Delivery(host, _refusal(error.response))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Delivery(host, f"{type(error).__name__} ({given.attempts} attempts)")
    return Delivery(host)


def _may_pass(error: Exception) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return status == httpx.codes.TOO_MANY_REQUESTS or error.response.is_server_error
    return isinstance(error, httpx.TransportError)


def _refusal(response: httpx.Response) -> str:
    return f"it answered {response.status_code} {response.reason_phrase}; check notify.webhook of the job file"
