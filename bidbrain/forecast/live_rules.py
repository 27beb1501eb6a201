"""`UnderLiveRules`: shows a strategy only the offers that a launch would show it.

A launch offers no market above its on-demand price, and lets a market that evicted machines rest, longer each time in a
row, unless no other is left.
"""

from dataclasses import dataclass, field, replace

from bidbrain.strategies.base import Decision, Holding, Return, Situation, Strategy
from bidbrain.strategies.proteus import RENEW_BEFORE
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE

FIRST_REST, LONGEST_REST = 2 * MINUTE, 60 * MINUTE


@dataclass(slots=True)
class UnderLiveRules:
    """A strategy for one play, with a count of its decisions, and the markets that have evicted machines."""

    strategy: Strategy
    decisions: int = 0
    _held: dict[int, Holding] = field(default_factory=dict)
    _returned: set[int] = field(default_factory=set)
    _rests: dict[Market, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """The strategy's decision among the offers that a launch would show."""
        self.decisions += 1
        self._note_evictions(situation)
        fair = tuple(offer for offer in situation.offers if situation.price(offer) <= offer.on_demand)
        resting = {market for market, (until, _) in self._rests.items() if until > situation.now}
        calm = tuple(offer for offer in fair if offer.market not in resting) if resting else fair
        among = calm or fair
        decision = self.strategy.decide(situation if among == situation.offers else replace(situation, offers=among))
        self._returned |= {action.allocation for action in decision.actions if isinstance(action, Return)}
        return decision

    def _note_evictions(self, situation: Situation) -> None:
        held = {holding.allocation: holding for holding in situation.holdings}
        gone = (
            holding for number, holding in self._held.items() if number not in held and number not in self._returned
        )
        for holding in gone:
            if holding.rent.spot:
                market, now = holding.rent.offer.market, situation.now
                until, times = self._rests.get(market, (now, 0))
                times = times + 1 if now <= until + LONGEST_REST else 1
                self._rests[market] = now + min(FIRST_REST << (times - 1), LONGEST_REST), times
        self._held = held


@dataclass(slots=True)
class RareLooks:
    """A strategy for one play. Once a look has changed nothing, the next one is after a `pause`."""

    strategy: Strategy
    pause: int
    _held: tuple[int, ...] = field(default=(), init=False)

    @property
    def name(self) -> str:
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """The strategy's decision; the next one later if the last one changed nothing."""
        decision, now = self.strategy.decide(situation), situation.now
        before, self._held = self._held, tuple(holding.allocation for holding in situation.holdings)
        settled = all(holding.ready <= now and holding.leaves_at is None for holding in situation.holdings)
        returns = any(isinstance(action, Return) for action in decision.actions)
        if not self._held or self._held != before or not settled or returns or decision.wake_at is None:
            return decision
        # The next moment at which renewals are decided, shortly before the end of a paid hour.
        starts = (holding.start for holding in situation.holdings)
        paid_until = min(now + HOUR - (now + RENEW_BEFORE - start) % HOUR for start in starts)
        return replace(decision, wake_at=max(decision.wake_at, min(now + self.pause, paid_until)))
