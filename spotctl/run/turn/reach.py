"""The markets where a run can get machines now: in clouds that answer, and within what the account may have. Pure."""

from collections.abc import Set
from dataclasses import dataclass, replace
from math import inf

from bidbrain.strategies.base import Rent
from pricing_data.market import Market
from spotctl.log.state import RunState
from spotctl.run.turn.observe import hidden
from spotctl.run.turn.reconcile import Buy, Instruction, StrategyTerms


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
