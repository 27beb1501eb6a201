"""`on-demand`: what the baseline does. Nothing is taken away, and everything is paid in full."""

from __future__ import annotations

from dataclasses import dataclass

from bidbrain.strategies.base import Decision, Situation


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Rents the baseline once and keeps it."""

    name: str = "on-demand"

    def decide(self, situation: Situation) -> Decision:
        """Rents at the start."""
        return Decision() if situation.holdings else Decision((situation.baseline,), reason="on demand, by choice")
