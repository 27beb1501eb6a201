"""Where a run can get machines now, and when a run that has none gives up: at once where waiting cannot help, else
after a while. Pure but for what it remembers."""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from math import inf

from bidbrain.strategies.base import Rent
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE
from spotctl.log.events import StopRequested
from spotctl.log.outcomes import BUDGET, FAILED, NO_CAPACITY
from spotctl.log.state import RunState
from spotctl.run.turn.budget_check import exhausted
from spotctl.run.turn.observe import hidden
from spotctl.run.turn.reconcile import Buy, Instruction, StrategyTerms

WAIT_WITHOUT_ANSWER = 5 * MINUTE
"""How long a run that has had no machine yet waits for clouds that do not answer."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a run can get machines. `missing` are markets that do not exist for the account. `denied` are pairs of a
    market and whether spot is meant, for which the quota holds no machine. `silent` are the beginnings of the ids of
    machines that cannot be listed."""

    missing: Set[Market] = frozenset()
    denied: Set[tuple[Market, bool]] = frozenset()
    silent: tuple[str, ...] = ()

    @classmethod
    def of(cls, state: RunState, silent: tuple[str, ...], *, shared: bool, fewest: float = inf) -> "Reach":
        """The reach of a run. If the account is `shared` with another run, a quota that is used up may be free again
        later. A quota that is too small for an order may still hold the `fewest` machines that the job needs."""
        missing = frozenset(market for (market, _), back_off in state.back_offs.items() if not back_off.exists)
        denied = frozenset() if shared else state.denied
        return cls(missing, {key for key in denied if state.refused[key].machines <= fewest}, silent)

    def admits(self, market: Market, *, spot: bool) -> bool:
        """Whether an order may bring machines of a market."""
        return not (market in self.missing or (market, spot) in self.denied or hidden(market, self.silent))

    def within(self, terms: StrategyTerms) -> StrategyTerms:
        """The terms with the offers that can be had."""
        return replace(terms, offers=tuple(offer for offer in terms.offers if self.admits(offer.market, spot=True)))

    def allows(self, instruction: Instruction) -> bool:
        """Whether an instruction can be carried out."""
        return not isinstance(instruction, Buy) or self._sells(instruction.rent)

    def blocks(self, state: RunState, terms: StrategyTerms) -> bool:
        """Whether a run that lacks machines cannot get any: no spot machines, nor those on demand in their place."""
        held = {state.allocations[machine.allocation].reliable for machine in state.alive}
        if terms.reliable is not None and True not in held and not self._sells(terms.reliable):
            return True
        spot = any(self.admits(offer.market, spot=True) for offer in terms.offers)
        return not (False in held or spot or self._sells(terms.baseline))

    def _sells(self, rent: Rent) -> bool:
        return self.admits(rent.offer.market, spot=rent.bid is not None)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """When to give up: the budget in nano-dollar-seconds, and how long (microseconds) to wait for any machine.

    The job cannot work with fewer than `least` machines. If it `shrinks`, refused orders are repeated for fewer.
    """

    budget: int | None = None
    without_machines: int = HOUR
    least: int = 1
    shrinks: bool = False


@dataclass(slots=True)
class Patience:
    """Since when a run has had no machines although it wanted some, and since when it cannot get any."""

    limits: RunLimits
    without_machines_since: int | None = None
    blocked_since: int | None = None

    def without_machines(self, state: RunState, now: int, *, waits: bool, short: bool) -> StopRequested | None:
        """The end of a run that got no machine for too long. A run `waits` if it wants none now, and may be `short` of
        money."""
        alive = state.alive
        if short:
            # Reliable machines alone cost money and do nothing.
            alive = tuple(held for held in alive if not state.allocations[held.allocation].reliable)
        if alive or waits:
            self.without_machines_since = None
            return None
        since = self.without_machines_since = _earliest(self.without_machines_since, now)
        if now - since <= self.limits.without_machines:
            return None
        if short and self.limits.budget is not None:
            return StopRequested(BUDGET, exhausted(self.limits.budget))
        last = f" (the last refusal: {state.refusal})" if state.refusal else ""
        message = f"no market offered a machine for {_minutes(now - since)}; allow more types or regions{last}"
        return StopRequested(NO_CAPACITY, message)

    def blocked(
        self, state: RunState, reach: Reach, terms: StrategyTerms, now: int, failure: str
    ) -> StopRequested | None:
        """The end of a run that the account allows no machine, or whose clouds do not answer: `failure` says why."""
        if not reach.blocks(state, terms):
            self.blocked_since = None
            return None
        if replace(reach, silent=()).blocks(state, terms):
            message = f"the account may rent none of the machines that the job needs: {state.refusal}"
            return StopRequested(NO_CAPACITY, message)
        since = self.blocked_since = _earliest(self.blocked_since, now)
        if now - since <= (self.limits.without_machines if state.machines else WAIT_WITHOUT_ANSWER):
            return None
        message = f"the job's regions have not answered for {_minutes(now - since)}: {failure}"
        return StopRequested(NO_CAPACITY, message)


def repeated_refusal(state: RunState, since: int) -> StopRequested | None:
    """The end of a run without machines to work on, two of whose orders after number `since` were refused with the same
    code, which is in no table."""
    working = any(not state.allocations[held.allocation].reliable for held in state.alive)
    codes = Counter(code for intent, code in state.unknown.items() if intent > since)
    if working or not codes or max(codes.values()) < 2:
        return None
    message = f"refused twice for a reason that spotctl does not know, so nothing more is ordered: {state.refusal}"
    return StopRequested(FAILED, message)


def _earliest(since: int | None, now: int) -> int:
    return now if since is None else since


def _minutes(span: int) -> str:
    return f"{span / MINUTE:.0f} minutes"
