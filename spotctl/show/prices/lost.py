"""Prices that are lost, because their files were damaged and set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pricing_data.units import counted, format_time

if TYPE_CHECKING:
    from pricing_data.store.facts import LostPrices


def lost_remarks(lost: Sequence[LostPrices]) -> list[str]:
    """A line for each period whose prices are lost."""
    return [
        f"some prices of {format_time(prices.first)} to {format_time(prices.last)} are lost:"
        f" {counted(prices.rows, 'price change')}, set aside as damaged"
        for prices in lost
    ]


def lost_json(prices: LostPrices) -> dict[str, Any]:
    """Prices that were set aside."""
    return {
        "file": prices.file,  #: file that had them
        "events": prices.rows,  #: number of price changes in it
        "first": format_time(prices.first),  #: time of the first one
        "last": format_time(prices.last),  #: time of the last one
    }


def losses(lost: Sequence[LostPrices]) -> dict[str, Any]:
    """The lost prices, as part of an answer.

    Fields:
        lost: prices that are lost, because their files were damaged; absent if none are
        lost[] -> lost_json
    """
    return {"lost": list(map(lost_json, lost))} if lost else {}
