"""Amounts of money as Google's APIs write them. Pure."""

from __future__ import annotations

from pricing_data.errors import BadInput
from pricing_data.units import ABSURD_USD_PER_HOUR, NANOS_PER_DOLLAR


def usd_nanos(units: int, nanos: int, currency: str) -> int:
    """Nano-dollars of an amount of money as Google writes it.

    >>> usd_nanos(1, 441435835, "USD")
    1441435835
    """
    total = units * NANOS_PER_DOLLAR + nanos
    if currency != "USD":
        raise BadInput(f"a price in {currency or 'no currency'}, not in USD")
    if not 0 < total <= ABSURD_USD_PER_HOUR * NANOS_PER_DOLLAR:
        raise BadInput(
            f"a price of {units} dollars and {nanos} nanos is not above 0 and at most {ABSURD_USD_PER_HOUR} dollars"
        )
    return total
