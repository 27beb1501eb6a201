"""Turns errors of SDKs into those of object stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pricing_data.errors import CloudError
from spotctl.agent.blobs.bucket import StoreRefused


@contextmanager
def refused_as_store() -> Iterator[None]:
    """Raises a `CloudError` as StoreRefused."""
    try:
        yield
    except CloudError as error:
        raise StoreRefused(str(error)) from None
