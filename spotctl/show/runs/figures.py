"""Cost and progress of a run: for the live view of a launch, its metrics and `spotctl top`."""

from collections.abc import Iterator
from dataclasses import dataclass

from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.clouds.base import CloudProvider
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.programs import Training
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.log import budget
from spotctl.log.budget import Tariff
from spotctl.log.ledger.project import recorded, spending
from spotctl.log.ledger.rows import CostSoFar
from spotctl.log.ledger.same_work import same_work
from spotctl.log.ledger_reader import stored_prices
from spotctl.log.present import present_of
from spotctl.log.state import RunState


@dataclass(frozen=True, slots=True)
class Money:
    """The cost so far; and in nano-dollar-seconds, the on-demand cost of the same work, the budget, and the
    committed amount, which is spent or reserved until the leases end."""

    spending: CostSoFar | None
    on_demand: int | None
    budget: int | None
    committed: int | None = None

    @property
    def spent(self) -> int | None:
        """The amount spent so far."""
        return None if self.spending is None else self.spending.amount

    @property
    def saved(self) -> float | None:
        """The share of the on-demand cost that was saved; None if costs are missing."""
        if self.spending is not None and self.spending.is_least:
            return None
        return None if self.spent is None or not self.on_demand else 1 - self.spent / self.on_demand

    @property
    def used(self) -> float | None:
        """The share of the budget that has been spent."""
        return None if self.spent is None or not self.budget else self.spent / self.budget


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run at `now`, a moment of its market's clock. `goal` is the clock at which the training ends, if one is set."""

    state: RunState
    now: int
    money: Money
    goal: int | None
    is_local: bool

    @property
    def expected_end(self) -> int | None:
        """When the run will end: at its pace so far, with all interruptions, else as planned; None if unknown."""
        state, paces = self.state, self.state.paces
        if self.goal is not None and len(paces) > 1 and state.progress is not None:
            (began, first), (latest, last) = paces[0], paces[-1]
            return latest + (latest - began) * (self.goal - state.progress.clock) // (last - first)
        if state.planned is None or state.planned.assumed:
            return None
        return state.started + round(state.planned.hours * HOUR)


def cards_by_market(state: RunState) -> Iterator[tuple[Market, float, float]]:
    """How busy the graphics cards of a market's machines are, and how full their memory is, as shares of 1: means over
    the machines for which it is known. Markets without such machines are left out."""
    by_market: dict[Market, list[tuple[int, int]]] = {}
    for held in state.alive:
        if held.cards is not None and held.cards.busy is not None and held.cards.memory is not None:
            used = held.cards.busy, held.cards.memory
            by_market.setdefault(state.allocations[held.allocation].market, []).append(used)
    for market, uses in by_market.items():
        busy, memory = (sum(part) / len(uses) / 100 for part in zip(*uses, strict=True))
        yield market, busy, memory


class RunMarkets:
    """The job, the provider and the prices of runs; each is read once."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._stored = settings, stored_prices(settings)
        self._known: dict[str, tuple[JobSpec, CloudProvider, Tariff]] = {}

    def of(self, state: RunState) -> tuple[JobSpec, CloudProvider, Tariff]:
        assert state.began is not None
        if state.run not in self._known:
            spec = restored(state.began.spec, self.settings.home)
            provider = provider_of(self.settings, spec)
            self._known[state.run] = spec, provider, budget.tariff_of(provider, state.started)
        return self._known[state.run]

    def figures(self, state: RunState, *, attended: bool = True) -> RunFigures:
        """The figures of a run now; at its end, if it has ended. `attended`: a process renews its leases."""
        spec, _, _ = self.of(state)
        now = present_of(state, self.settings).now
        goal = spec.program.stop.clocks if isinstance(spec.program, Training) else None
        return RunFigures(state, now, self.money(state, now, attended=attended), goal, spec.is_local)

    def money(self, state: RunState, at: int, *, attended: bool = True) -> Money:
        """The money of a run in a state, at a moment of its clock."""
        spec, _, tariff = self.of(state)
        return _money(state, spec, spending(state, self._stored, at, attended=attended), at, tariff)


def _money(state: RunState, spec: JobSpec, spent: CostSoFar, now: int, tariff: Tariff) -> Money:
    limit = None if spec.budget is None else spec.budget * 3600
    if state.ended is not None:
        return Money(spent, state.ended.facts.get("on_demand"), limit, spent.amount)
    try:
        teardown = LeaseTimes.of(spec).teardown
        committed = budget.committed(state, now, recorded(state, tariff), teardown)
    except (ProviderError, PricingDataError):
        # The local market was restarted at an earlier time since the run was interrupted, or prices are missing.
        committed = None
    return Money(spent, same_work(state, now).amount, limit, committed)
