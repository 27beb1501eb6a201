"""The interface of an acquisition strategy: situation in, decision out.

A strategy is a pure function: everything it may know is in the situation, and the decision's reason contains the
figures behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type that can be rented in a market: work per hour (nu, vCPUs by default) and on-demand price."""

    market: Market
    nu: float
    on_demand: int


@dataclass(frozen=True, slots=True)
class Rent:
    """Machines of one offer, bought together. Without a bid they are on-demand machines, which are never evicted."""

    offer: Offer
    machines: int
    bid: int | None


def described(rent: Rent) -> str:
    """A purchase as a decision's reason names it: `8 x c4.xlarge, bid $0.0299/h`."""
    price = "on demand" if rent.bid is None else f"bid ${rent.bid / NANOS_PER_DOLLAR:.3g}/h"
    return f"{rent.machines} x {rent.offer.market.instance_type}, {price}"


@dataclass(frozen=True, slots=True)
class Return:
    """Return an allocation now, or at a later moment (the end of its paid hour; it works until then)."""

    allocation: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation in use: bought at `start`, working from `ready`, to be returned at `leaves_at`."""

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
    """What a strategy knows when it decides. `price` answers for this moment only.

    `most_nu` is the most work per hour that may be rented in total; `baseline` is what the job would rent on demand.
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
    """What to do now, and the latest time of the next decision. A strategy is always asked again after an eviction."""

    actions: tuple[Rent | Return, ...] = ()
    wake_at: int | None = None
    reason: str = ""


class Strategy(Protocol):
    """A way of renting machines for a job."""

    @property
    def name(self) -> str:
        """Its name in scenarios and results."""
        ...

    def decide(self, situation: Situation, /) -> Decision:
        """Which machines to rent and which to return."""
        ...
