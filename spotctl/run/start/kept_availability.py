"""Keeps what a run observed of its spot markets in the price store, where later plans of any job find it."""

from contextlib import suppress

from pricing_data.errors import StoreError
from pricing_data.fetched_rows import FetchedRows
from spotctl.clouds.wiring import price_store
from spotctl.home.config import Settings
from spotctl.log.observed import availability_of
from spotctl.log.state import RunState


def keep_availability(state: RunState, now: int, settings: Settings) -> None:
    """Stores the spans of a run that has ended. If the store cannot be written, its log still has them."""
    spans = availability_of(state, now)
    if spans:
        with suppress(StoreError):
            price_store(settings).commit(FetchedRows(availability=spans))
