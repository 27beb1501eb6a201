"""`on-demand`: the baseline itself, never evicted and always paid in full."""

from dataclasses import dataclass

from bidbrain.strategies.base import Decision, Situation, described


@dataclass(frozen=True, slots=True)
class AlwaysOnDemand:
    """Rents the baseline once and keeps it."""

    name: str = "on-demand"

    def decide(self, situation: Situation) -> Decision:
        """Rents the baseline at the start, then nothing."""
        return (
            Decision()
            if situation.holdings
            else Decision((situation.baseline,), reason=f"rent {described(situation.baseline)}")
        )
