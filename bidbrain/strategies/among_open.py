"""`AmongOpen`: restricts a strategy to the offers that have capacity at the moment."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bidbrain.strategies.base import LOOK_AGAIN, Decision, Offer, Situation, Strategy


@dataclass(frozen=True, slots=True)
class AmongOpen:
    """A strategy for the offers that are open; limited capacity closes some of them.

    `make` builds the strategy for a subset of the offers, once for each. Machines already held are kept or returned
    whether or not their market still has capacity.
    """

    make: Callable[[tuple[Offer, ...]], Strategy]
    offers: tuple[Offer, ...]
    _among_all: Strategy = field(init=False, repr=False)
    _among: dict[tuple[Offer, ...], Strategy] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_among_all", self.make(self.offers))

    @property
    def name(self) -> str:
        return self._among_all.name

    def decide(self, situation: Situation) -> Decision:
        """Asks the wrapped strategy among the open offers; decides again soon, since more may be open by then."""
        if situation.offers == self.offers:
            return self._among_all.decide(situation)
        if situation.offers not in self._among:
            self._among[situation.offers] = self.make(situation.offers)
        decision = self._among[situation.offers].decide(situation)
        soon = situation.now + LOOK_AGAIN
        return replace(decision, wake_at=soon if decision.wake_at is None else min(decision.wake_at, soon))
