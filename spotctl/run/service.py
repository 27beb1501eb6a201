"""The loop of a run: look, finish what was begun, hear the work, decide, act; until nothing is left to give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bidbrain.strategies.base import Offer, Strategy
from pricing_data.units import HOUR, MINUTE
from spotctl import ledger
from spotctl.machines.base import CloudProvider, Machine, NotPermitted, ProviderError
from spotctl.run import observe, reconcile
from spotctl.run.budget_guard import BudgetGuard, words
from spotctl.run.execute import Executor, Journal
from spotctl.run.reconcile import GiveBack, Instruction, Pace, Terms
from spotctl.run.workload import Verdict, Workload
from spotctl.runlog import budget
from spotctl.runlog import events as ev
from spotctl.runlog.budget import LISTING_DELAY, Tariff
from spotctl.runlog.errors import LogFailed
from spotctl.runlog.outcomes import NO_CAPACITY, NOT_PERMITTED
from spotctl.runlog.state import RunState

ASK_EVERY = 5 * MINUTE
"""A strategy is asked at least so often, in market time: what it wanted may have been refused."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run is given up: what it may cost (nano-dollar-seconds), and how long it waits for a first machine."""

    budget: int | None = None
    without_machines: int = HOUR


@dataclass(frozen=True, slots=True)
class Brief:
    """Who decides, about what, and within which limits. `choose` is called when there is something to choose."""

    choose: Callable[[], tuple[Strategy, Terms]]
    tariff: Tariff
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class _Asked:
    """When the strategy is to be asked next, and what it was asked about last."""

    again_at: int = 0
    about: object = field(default=None)


@dataclass(frozen=True, slots=True)
class _Costs:
    """What is said of costs at the end, and the prices by which the log can tell them."""

    shown: dict[str, int]
    priced: tuple[ev.Priced, ...]


class Runner:
    """Runs a job on a provider's machines. It keeps nothing that the log could not tell."""

    def __init__(
        self, journal: Journal, provider: CloudProvider, executor: Executor, workload: Workload, brief: Brief
    ) -> None:
        self._journal = journal
        self._provider = provider
        self._executor = executor
        self._workload = workload
        self._brief = brief
        self._purse = BudgetGuard(journal, brief.tariff, brief.pace, brief.limits.budget)
        self._asked = _Asked()
        self._left = 1.0
        self._sure = False
        self._alone_since: int | None = None

    @cached_property
    def _choice(self) -> tuple[Strategy, Terms]:
        """Who only gives back what an earlier process rented has nothing to choose."""
        return self._brief.choose()

    @property
    def state(self) -> RunState:
        """The run as far as it is known."""
        return self._journal.state

    def run(self, pause: Callable[[], None], wall_us: Callable[[], int]) -> ev.RunEnded:
        """Until the run is over; `pause` is called between turns."""
        try:
            while not self._over():
                self.turn()
                if not self._over():
                    pause()
            return self._end(wall_us())
        except LogFailed as error:
            self._executor.let_go()
            raise LogFailed(f"{error}; what ran was given back") from error
        except Exception:
            # Nobody thought of this; nothing is left running, whatever it is.
            self._executor.let_go()
            raise

    def turn(self) -> None:
        """One round."""
        stopping, self._sure = self.state.stopping is not None, False
        try:
            machines = self._look()
            self._sure = stopping and machines is not None
            unclear = self.state.unclear
            self._executor.settle()
            if self.state.unclear != unclear:
                # Machines of an order that nobody answered are known by looking once more.
                machines = self._look()
                self._sure = stopping and machines is not None
            self._hear(self._workload.turn(self.state, machines or (), self._journal.now()))
            self._act()
        except NotPermitted as error:
            self._sure = stopping
            self._not_permitted(error)
        except ProviderError:
            # Prices that are not told now may be in the next turn; without them no money is spent.
            return

    def _look(self) -> Sequence[Machine] | None:
        machines = self._executor.look()
        if machines is not None:
            for event in observe.news(self.state, machines, self._journal.now(), self._provider.name):
                self._journal.write(event)
        self._journal.catch_up()
        return machines

    def _hear(self, verdict: Verdict) -> None:
        for event in verdict.told:
            self._journal.write(event)
        if verdict.progress is not None:
            self._journal.write(verdict.progress)
        if verdict.share is not None:
            self._left = max(1.0 - verdict.share, 0.0)
        if verdict.outcome is None:
            self._purse.foretell(verdict.share)
        else:
            self._stop(verdict.outcome, verdict.message, self._workload.facts())
        useless = tuple(name for name in verdict.useless if not self.state.machines[name].returning)
        if useless:
            self._executor.carry_out(GiveBack(useless, "its work has ended"))

    def _stop(self, outcome: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        if self.state.stopping is None:
            self._journal.write(ev.StopRequested(outcome, message, dict(facts or {})))

    # -- what is to be done -------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """What is to be done now, as far as the budget allows it: what is held is kept before anything is bought."""
        now, stop = self._journal.now(), self.state.stopping
        if stop is not None:
            # The work has heard of it, and has saved what it could.
            self._carry_out(reconcile.everything_back(self.state, f"the run ends: {stop.outcome}"))
            return
        self._carry_out(self._purse.affordable(reconcile.upkeep(self.state, now, self._brief.pace)))
        if self.state.stopping is None:
            self._carry_out(self._purse.affordable(self._bought(now)))

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            self._executor.carry_out(instruction)

    def _bought(self, now: int) -> list[Instruction]:
        # While it is not known what an order brought, another could buy the same again.
        if self._unsettled():
            return []
        self._check_capacity(now)
        if self.state.stopping is not None:
            return []
        strategy, terms = self._choice
        wanted = reconcile.reliable_wanted(self.state, terms, now)
        about = (
            [(number, len(self.state.of(number))) for number in self.state.allocations],
            [held.id for held in self.state.alive if held.warned_until is not None],
            [market for market, rest in self.state.rests.items() if now < rest.until],
        )
        if about == self._asked.about and now < self._asked.again_at:
            return wanted
        if reconcile.nearly_done(self.state, self._left, now, self._brief.pace):
            return wanted
        situation = reconcile.situation(self.state, terms, self._price_at(now), now, self._brief.pace, self._left)
        if not situation.offers and not situation.holdings and self._taken_soon():
            # What is open once they are taken, it can choose then; now all that is left is on demand.
            return wanted
        decision = strategy.decide(situation)
        latest = now + ASK_EVERY
        self._asked = _Asked(latest if decision.wake_at is None else min(latest, decision.wake_at), about)
        actions = reconcile.purchases(self.state, decision, now, self._brief.pace)
        if actions:
            self._journal.write(ev.Decided(tuple(map(words, actions)), decision.reason))
        return [*wanted, *actions]

    def _taken_soon(self) -> bool:
        return any(held.warned_until is not None for held in self.state.alive)

    def _price_at(self, now: int) -> Callable[[Offer], int]:
        return lambda offer: self._brief.tariff.prices(offer.market, now).price_at(now)

    def _check_capacity(self, now: int) -> None:
        """A run that gets no machine at all is given up in the end."""
        if self.state.alive:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > self._brief.limits.without_machines:
            waited = (now - self._alone_since) / MINUTE
            self._stop(NO_CAPACITY, f"no market gave a machine for {waited:.0f} minutes; allow more types or regions")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        """Nothing of it is left, and that was seen after it was to end: machines of a lost answer come to light so."""
        state = self.state
        return state.ended is not None or (self._sure and not state.alive and not self._unsettled())

    def _unsettled(self) -> bool:
        """Whether an order may still bring machines; renewals and returns of machines that are gone are moot."""
        asked = any(isinstance(intent, ev.RentIntended) for intent in self.state.open.values())
        return asked or any(self._journal.now() < since + LISTING_DELAY for since in self.state.unclear.values())

    def _end(self, wall_us: int) -> ev.RunEnded:
        if self.state.ended is None:
            stop = self.state.stopping
            assert stop is not None
            facts, costs = {**stop.facts, **self._workload.facts()}, self._costs()
            if costs is not None:
                facts |= costs.shown
                for priced in costs.priced:
                    self._journal.write(priced)
            self._journal.write(ev.RunEnded(stop.outcome, stop.message, wall_us, facts))
        assert self.state.ended is not None
        return self.state.ended

    def _costs(self) -> _Costs | None:
        """What was paid, and what the same work would have cost on demand; None where no prices are told any more."""
        now, tariff = self._journal.now(), self._brief.tariff

        def count() -> _Costs:
            spent, listed = budget.spent(self.state, now, tariff), ledger.on_demand(self.state, now, tariff)
            return _Costs({"spent": spent, "on_demand": listed}, tuple(ledger.priced(self.state, now, tariff)))

        try:
            return self._executor.asked(count)
        except ProviderError:
            return None

    def _not_permitted(self, error: NotPermitted) -> None:
        """Nothing can be changed any more, not even given back: the leases see to that."""
        first = self.state.stopping is None
        self._stop(NOT_PERMITTED, str(error))
        if not first:
            now = self._journal.now()
            for held in self.state.alive:
                if now >= held.lease_until + self._brief.pace.teardown:
                    self._journal.write(ev.MachineEnded(held.id, held.lease_until, "lease ended"))
