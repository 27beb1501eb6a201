"""The two kinds of bids: relative to the price at the start, or absolute."""

from dataclasses import dataclass

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.eviction.crossing import Crossing, CrossingHistory
from pricing_data.series import Ints
from pricing_data.units import format_usd


class BadBid(BidBrainError):
    """A bid that is negative or zero where it must not be."""


@dataclass(frozen=True, slots=True)
class BidAbove:
    """A bid of `delta` nano-dollars above the price at the start; every start holds it."""

    delta: int

    def __post_init__(self) -> None:
        if self.delta < 0:
            raise BadBid(
                f"bid delta of {self.delta / 1e9:g} US dollars is negative; a bid below the price gets no machine"
            )

    def limits(self, held: Ints) -> Ints:
        """Absolute bids of starts at these prices."""
        return held + self.delta

    def crossing(self, history: CrossingHistory) -> Crossing:
        """Eviction statistics of the bid over a history."""
        return history.at_delta(self.delta)

    def __str__(self) -> str:
        return f"${format_usd(self.delta)} above the price"


@dataclass(frozen=True, slots=True)
class FixedBid:
    """A bid of `price` nano-dollars per hour; only starts at or below that price hold it."""

    price: int

    def __post_init__(self) -> None:
        if self.price <= 0:
            raise BadBid(f"bid of {self.price / 1e9:g} US dollars an hour is not above 0")

    def limits(self, held: Ints) -> Ints:
        """Absolute bids of starts at these prices."""
        return np.full_like(held, self.price)

    def crossing(self, history: CrossingHistory) -> Crossing:
        """Eviction statistics of the bid over a history."""
        return history.at_bid(self.price)

    def __str__(self) -> str:
        return f"${format_usd(self.price)}"


Bid = BidAbove | FixedBid
