"""Requests to object stores that obstore does not make: copies between buckets, where a bucket is,
and left parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError
from spotctl.agent.data.stores import (
    CALL_SECONDS,
    StoreRefused,
    StoreUnavailable,
    refusal,
    repeated,
)

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
    """An object store's answer to a request that obstore does not make; transient failures are
    repeated.

    StoreRefused: the store refuses, with its code and message. NoSuchObject: there is no such
    bucket or object.
    """
    import httpx

    def answer() -> Response:
        try:
            reply = httpx.request(
                method, url, params=query, headers=dict(headers), content=body, timeout=CALL_SECONDS
            )
        except httpx.TransportError as error:
            raise StoreUnavailable(f"{what}: no answer: {error}") from None

        if not reply.is_success:
            raise refusal(what, reply.status_code, reply.text)
        return reply

    return repeated(what, answer)
