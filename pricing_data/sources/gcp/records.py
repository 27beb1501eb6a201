"""Records that cannot be read: counted and named, while the good ones beside them are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pricing_data.errors import BadInput, SourceUnavailable
from pricing_data.units import ABSURD_USD_PER_HOUR, NANOS_PER_DOLLAR

R = TypeVar("R")
T = TypeVar("T")


@dataclass(slots=True)
class Rejects:
    """What had to be left out: how many records, and the first of them with the reason."""

    count: int = 0
    example: str = ""

    def add(self, reason: object) -> None:
        """Counts one more."""
        self.count += 1
        self.example = self.example or " ".join(str(reason).split())

    def good(self, read: Callable[[R], T], records: Iterable[R], about: object = "") -> Iterator[T]:
        """What `read` makes of each record; those that it refuses are counted, as records about something."""
        for record in records:
            try:
                row = read(record)
            except BadInput as error:
                self.add(f"{about}: {error}" if about else error)
            else:
                yield row

    def report(self, asked: str) -> None:
        """Raises if anything was left out; to be called when the good rows are delivered."""
        if self.count:
            raise SourceUnavailable(
                f"{asked}: {self.count} left out, the others are kept; the first: {self.example};"
                " the next fetch asks for them again"
            )


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
