"""Amounts of money in Google's APIs. Pure."""

from pricing_data.errors import BadInput
from pricing_data.units import MAX_USD_PER_HOUR, NANOS_PER_DOLLAR


def usd_nanos(units: int, nanos: int, currency: str) -> int:
    """An amount of money in nano-dollars.

    >>> usd_nanos(1, 441435835, "USD")
    1441435835
    """
    total = units * NANOS_PER_DOLLAR + nanos
    if currency != "USD":
        raise BadInput(f"the price is in {currency or 'no currency'}, not in USD")
    if not 0 < total <= MAX_USD_PER_HOUR * NANOS_PER_DOLLAR:
        raise BadInput(
            f"the price of {units} dollars and {nanos} nanos is not above 0 and at most {MAX_USD_PER_HOUR} dollars"
        )
    return total
