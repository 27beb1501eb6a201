"""`AmongOpen`: a strategy that is made for certain offers, asked about those of them that can be had at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bidbrain.strategies.base import Decision, Offer, Situation, Strategy
from pricing_data.units import MINUTE

_LOOK_AGAIN = 2 * MINUTE


@dataclass(frozen=True, slots=True)
class AmongOpen:
    """Where capacity is limited, offers that a request would not get are left out of a strategy's choice.

    `make` gives the strategy for some of the offers. What is held is judged whether or not more of it could be had.
    """

    make: Callable[[tuple[Offer, ...]], Strategy]
    offers: tuple[Offer, ...]
    _among_all: Strategy = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_among_all", self.make(self.offers))

    @property
    def name(self) -> str:
        """That of the strategy."""
        return self._among_all.name

    def decide(self, situation: Situation) -> Decision:
        """As the strategy does, made for what is open; looks again soon, because more may be open then."""
        if situation.offers == self.offers:
            return self._among_all.decide(situation)
        decision = self.make(situation.offers).decide(situation)
        soon = situation.now + _LOOK_AGAIN
        return replace(decision, wake_at=soon if decision.wake_at is None else min(decision.wake_at, soon))
