"""Parts of quotas that change while a job runs: more machines once other jobs end, fewer, or none
for a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import CommonQuota, machines_leaving
from bidbrain.strategies.base import Decision, Holding, Return, Situation
from pricing_data.market import Market


@dataclass(frozen=True, slots=True)
class QuotaPart:
    """A job's parts of the quotas of spot machines from a moment on, and the most work per hour
    that they are for; 0 while the job waits."""

    at: int
    spot: tuple[CommonQuota[Market], ...]
    most_nu: float

    def keeps(self, decider: Decider) -> Decider:
        """The decider within this part."""
        most_nu = decider.most_nu if decider.limits.together else self.most_nu
        limits = replace(decider.limits, spot=self.spot)
        return replace(decider, most_nu=most_nu, limits=limits)


@dataclass(frozen=True, slots=True)
class InParts:
    """A strategy that follows a decider within each part in its time."""

    decider: Decider
    parts: tuple[QuotaPart, ...]

    @property
    def name(self) -> str:
        return self.decider.name

    def decide(self, situation: Situation) -> Decision:
        """The decider's decision within the present part; machines beyond it are returned."""
        begun = sum(part.at <= situation.now for part in self.parts)
        part = self.parts[max(begun, 1) - 1]
        after = self.parts[max(begun, 1) :]
        change = after[0].at if after else None
        gone = situation.holdings if not part.most_nu else _beyond(part, situation.holdings)
        back = tuple(Return(holding.allocation) for holding in gone)
        if not part.most_nu:
            return Decision(back, change, "waits for its part of a quota")

        decider = part.keeps(self.decider)
        staying = tuple(holding for holding in situation.holdings if holding not in gone)
        leaving = machines_leaving(situation, staying)
        rest = replace(situation, holdings=staying, leaving=leaving, most_nu=decider.most_nu)
        decided = decider.decide(rest)
        wakes = [at for at in (decided.wake_at, change) if at is not None]

        wake_at = min(wakes, default=None)
        return replace(decided, actions=(*back, *decided.actions), wake_at=wake_at)


def _beyond(part: QuotaPart, holdings: Sequence[Holding]) -> list[Holding]:
    """The spot machines that the part has no room for, the latest first."""
    gone = list[Holding]()
    for quota in part.spot:
        held = [holding for holding in holdings if holding.rent.spot and holding not in gone]
        used = sum(
            quota.uses.get(holding.rent.offer.market, 0) * holding.rent.machines for holding in held
        )
        for holding in reversed(held):
            use_of_one = quota.uses.get(holding.rent.offer.market, 0)
            each = use_of_one * holding.rent.machines
            if used > quota.amount and each:
                gone.append(holding)
                used -= each

    return gone
