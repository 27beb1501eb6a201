"""What every acquisition strategy is asked and answers.

A strategy is a pure function of the situation: what it may know is in it, what it wants is in the decision, and the
numbers that led there are in the decision's reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pricing_data.market import Market


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of machine that can be rented in a market: work per hour (nu, vCPUs by default), on-demand price."""

    market: Market
    nu: float
    on_demand: int


@dataclass(frozen=True, slots=True)
class Rent:
    """Machines of one offer, bought together. Without a bid they are on-demand, and nobody takes them back."""

    offer: Offer
    machines: int
    bid: int | None


@dataclass(frozen=True, slots=True)
class Return:
    """Give an allocation back: now, or at a later moment (the end of its paid hour, until when it goes on working)."""

    allocation: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation that is held: bought at `start`, doing work from `ready` on, to be given back at `leaves_at`."""

    allocation: int
    rent: Rent
    start: int
    ready: int
    leaves_at: int | None = None

    @property
    def nu(self) -> float:
        """Work per hour of all its machines."""
        return self.rent.machines * self.rent.offer.nu


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known when a strategy is asked. `price` answers for this moment and no other.

    `most_nu` is how much work per hour may be rented in all; `baseline` is what the job would rent on-demand.
    """

    now: int
    offers: tuple[Offer, ...]
    price: Callable[[Offer], int]
    holdings: tuple[Holding, ...]
    baseline: Rent
    most_nu: float
    work_left: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, and when to be asked again at the latest. After an eviction a strategy is asked anyway."""

    actions: tuple[Rent | Return, ...] = ()
    wake_at: int | None = None
    reason: str = ""


class Strategy(Protocol):
    """One way of renting."""

    @property
    def name(self) -> str:
        """What it is called in scenarios and results."""
        ...

    def decide(self, situation: Situation, /) -> Decision:
        """What to rent and what to give back."""
        ...
