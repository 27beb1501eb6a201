"""How a bid is put: above the price at the start, or as a price of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.eviction.crossing import Crossing, CrossingHistory
from pricing_data.series import Ints
from pricing_data.units import format_usd


class BadBid(BidBrainError):
    """A bid that no market could be asked about."""


@dataclass(frozen=True, slots=True)
class BidAbove:
    """A bid of `delta` nano-dollars above the price at the start; every start can hold it."""

    delta: int

    def __post_init__(self) -> None:
        if self.delta < 0:
            raise BadBid(
                f"bid delta of {self.delta / 1e9:g} US dollars is negative; a bid below the price holds nothing"
            )

    def limits(self, held: Ints) -> Ints:
        """The bids of starts at these prices."""
        return held + self.delta

    def crossing(self, history: CrossingHistory) -> Crossing:
        """What the bid would have met in a history."""
        return history.at_delta(self.delta)

    def __str__(self) -> str:
        return f"${format_usd(self.delta)} above the price"


@dataclass(frozen=True, slots=True)
class FixedBid:
    """A bid of `price` nano-dollars an hour; only starts whose price is not above it can hold it."""

    price: int

    def __post_init__(self) -> None:
        if self.price <= 0:
            raise BadBid(f"bid of {self.price / 1e9:g} US dollars an hour is not above 0")

    def limits(self, held: Ints) -> Ints:
        """The bids of starts at these prices."""
        return np.full_like(held, self.price)

    def crossing(self, history: CrossingHistory) -> Crossing:
        """What the bid would have met in a history."""
        return history.at_bid(self.price)

    def __str__(self) -> str:
        return f"${format_usd(self.price)}"


Bid = BidAbove | FixedBid
