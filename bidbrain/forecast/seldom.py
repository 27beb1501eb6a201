"""`Seldom`: a strategy that looks less often while its machines run, for plays of long jobs.

In a run a look costs nothing, and some strategies ask for one every two minutes to notice new prices. In a play of days
almost all of these looks change nothing. Losses, and the ends of paid hours, are looked at as before.
"""

from dataclasses import dataclass, field, replace

from bidbrain.strategies.base import Decision, Return, Situation, Strategy
from bidbrain.strategies.proteus import RENEW_BEFORE
from pricing_data.units import HOUR


@dataclass(slots=True)
class Seldom:
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
        paid_until = min(_hour_looked_at(holding.start, now) for holding in situation.holdings)
        return replace(decision, wake_at=max(decision.wake_at, min(now + self.pause, paid_until)))


def _hour_looked_at(start: int, now: int) -> int:
    """The next moment at which renewals of an allocation are decided, shortly before the end of a paid hour."""
    return now + HOUR - (now + RENEW_BEFORE - start) % HOUR
