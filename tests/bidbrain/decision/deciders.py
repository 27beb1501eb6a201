"""A decider of three markets whose strategy wants what a test tells it to."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.clouds.link import LeaseTimes
from spotctl.planning.facts import OVERHEADS
from tests.spotctl.planning.worlds import CENT, NOW, offer

A, B, C = (
    Offer(offer(name, zone), 4.0, 20 * CENT) for name, zone in (("a", "a"), ("a", "b"), ("b", "a"))
)
BASELINE = Rent(A, 8, None)
ROOM = MachineLimits(1, 8, {})
WORK = 32.0 * HOUR
LEASE = LeaseTimes().committed
# What is left to do on demand takes an hour. Entering machines loses up to 5.5 minutes, an eviction
# of all up to 7, and the next decision is 2 minutes away.
LAST = NOW + HOUR + 14 * MINUTE + 30 * SECOND


@dataclass
class Wants:
    """A strategy that always wants the same actions."""

    actions: tuple[Rent | Return, ...]
    name: str = "told"
    asked: list[Situation] = field(default_factory=list)

    def decide(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        return Decision(self.actions, NOW + HOUR, "as told")


def deciding(
    *wanted: Rent | Return,
    limits: MachineLimits = ROOM,
    deadline: int | None = None,
    billing: str = "per-second",
) -> Decider:
    rule = billing_rule(billing)
    return Decider(
        (A, B, C), BASELINE, None, 32.0, limits, OVERHEADS, deadline, Wants(wanted), rule, LEASE
    )


def situation(
    *holdings: Holding, work: float = inf, offers: tuple[Offer, ...] = (A, B, C)
) -> Situation:
    return Situation(NOW, offers, lambda _: CENT, holdings, BASELINE, 32.0, work)


def held(number: int, of: Offer, machines: int, bid: int | None = 5 * CENT) -> Holding:
    return Holding(number, Rent(of, machines, bid), NOW - HOUR, NOW - HOUR)


def rents(decision: Decision) -> list[Rent]:
    return [action for action in decision.actions if isinstance(action, Rent)]
