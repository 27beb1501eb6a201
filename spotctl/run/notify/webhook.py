"""Posting a message to a webhook. A failed delivery is reported and never fails the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotctl.run.notify.message import Message
from spotctl.run.notify.shapes import body

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class DeliveryRetry:
    """The timeout and number of attempts, and the seconds before the second attempt."""

    timeout: float = 10.0
    attempts: int = 3
    first_pause: float = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of posting a message. Only the host is named: anyone who knows a webhook's path can post there."""

    host: str
    failure: str = ""

    @property
    def text(self) -> str:
        """A line for the log."""
        return f"could not notify {self.host}: {self.failure}" if self.failure else f"notified {self.host}"


def post(message: Message, webhook: str, retry: DeliveryRetry | None = None) -> Delivery:
    """Posts a message to an address or to that in a variable (`$NAME`). Never raises for receiver or network errors."""
    import httpx

    def send(url: str, timeout: float) -> httpx.Response:
        return httpx.post(url, json=body(message, url), timeout=timeout)

    return _deliver(webhook, send, retry)


def beat(heartbeat: str, signal: str, retry: DeliveryRetry | None = None) -> Delivery:
    """Tells a health check that a night starts (`/start`), has ended well (empty) or has not (`/fail`)."""
    import httpx

    def send(url: str, timeout: float) -> httpx.Response:
        return httpx.get(url.rstrip("/") + signal, timeout=timeout)

    return _deliver(heartbeat, send, retry)


def _deliver(address: str, send: Callable[[str, float], httpx.Response], retry: DeliveryRetry | None) -> Delivery:
    import httpx
    import stamina

    url = os.environ.get(address[1:], "") if address.startswith("$") else address
    if not url:
        return Delivery(address, f"{address[1:]} is not in the environment")
    policy, host = retry or DeliveryRetry(), urlsplit(url).netloc
    try:
        for attempt in stamina.retry_context(
            on=_is_temporary,
            attempts=policy.attempts,
            wait_initial=policy.first_pause,
            wait_max=8 * policy.first_pause,
            timeout=None,
        ):
            with attempt:
                # Redirects are not followed: the message is only for the configured receiver.
                send(url, policy.timeout).raise_for_status()
    except httpx.HTTPStatusError as error:
        return Delivery(host, _refusal(error.response))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Delivery(host, f"{type(error).__name__} ({policy.attempts} attempts)")
    return Delivery(host)


def _is_temporary(error: Exception) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return status == httpx.codes.TOO_MANY_REQUESTS or error.response.is_server_error
    return isinstance(error, httpx.TransportError)


def _refusal(response: httpx.Response) -> str:
    return f"HTTP {response.status_code} {response.reason_phrase}; check the address of the webhook"
