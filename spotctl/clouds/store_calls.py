"""Requests to object stores that obstore does not make: copies between buckets, and where a bucket is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError
from spotctl.agent.data.stores import ATTEMPTS, CALL_SECONDS, FIRST_PAUSE, StoreRefused, StoreUnavailable, refusal

if TYPE_CHECKING:
    from httpx import Response


@contextmanager
def refused_as_store() -> Iterator[None]:
    """Raises a `CloudError` as StoreRefused."""
    try:
        yield
    except CloudError as error:
        raise StoreRefused(str(error)) from None


def store_answer(
    method: str,
    url: str,
    what: str,
    headers: Mapping[str, str],
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Response:
    """An object store's answer to a request that obstore does not make; transient failures are repeated.

    StoreRefused: the store refuses, with its code and message. NoSuchObject: there is no such bucket or object.
    """
    import httpx

    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = httpx.request(method, url, params=query, headers=dict(headers), content=body, timeout=CALL_SECONDS)
        except httpx.TransportError as error:
            failure: StoreRefused = StoreUnavailable(f"{what}: no answer: {error}")
        else:
            if answer.is_success:
                return answer
            failure = refusal(what, answer.status_code, answer.text)
        if attempt == ATTEMPTS or not isinstance(failure, StoreUnavailable):
            raise failure
        time.sleep(pause)
        pause *= 2
    raise AssertionError("the last attempt returns or raises")
