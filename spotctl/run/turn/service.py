"""The loop of a run: observe, settle open requests, advance the work, decide, act; until every
machine is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from bidbrain.strategies.base import Strategy
from pricing_data.units import MINUTE
from spotctl.clouds.errors import LoginNeeded, NotHere, NotPermitted, ProviderError
from spotctl.clouds.provider import Machine
from spotctl.home.callbacks import always, never, unheard
from spotctl.home.errors import BadRequest
from spotctl.log import boots, events as ev
from spotctl.log.budget import Tariff
from spotctl.log.outcomes import BUDGET, FAILED, NOT_IN_TIME, NOT_PERMITTED, BrokenLog, LogFailed
from spotctl.log.state import RunState
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.run.environment import RunEnvironment
from spotctl.run.turn import observe, reconcile
from spotctl.run.turn.bidding import LiveBids
from spotctl.run.turn.budget_check import BudgetCheck, described
from spotctl.run.turn.ending import EndOfRun, Patience, Reach, RunLimits
from spotctl.run.turn.execute import Executor, Journal, RetryPolicy
from spotctl.run.turn.reconcile import (
    Buy,
    Instruction,
    ReturnMachines,
    ScheduleReturn,
    StrategyTerms,
)
from spotctl.run.work.workload import Workload, WorkReport

if TYPE_CHECKING:
    from spotctl.log.store import EventLog
    from spotctl.run.turn.budget_check import PlayedRest

DECIDE_EVERY = 5 * MINUTE
"""Longest market time between decisions of a strategy: its last wishes may have been refused."""

NOTE_STANDING_SECONDS = 10.0
"""How much longer the market's clock has stood when the log says so again."""

UNWATCHED = 2 * MINUTE
"""A longer pause between two looks at booting machines, as when a laptop sleeps, hides their signs
of life."""


@dataclass(frozen=True, slots=True)
class RunRules:
    """The strategy of a run with its terms, the prices, and the limits.

    `strategy` is called when the first decision is due: a run that only returns its machines needs
    no plan. `share_left` is the share of the work that the plan considers left, for work that does
    not report its progress. `rest` is the rest of the run after a finished share, for its forecast;
    None if the plan does not know how much work there is. `quotas` is asked before each decision:
    if the run's parts of the quotas have changed, it returns the new ones, and `strategy` is called
    again; `surplus` are the machines that exceed them. `shared` says whether other runs hold
    machines that count against the same quotas, and whether an order `fits` next to them. `bids`
    changes those in markets where each host runs the highest one.
    """

    strategy: Callable[[], tuple[Strategy, StrategyTerms]]
    tariff: Tariff
    limits: RunLimits = field(default_factory=RunLimits)
    share_left: Callable[[], float | None] = unheard
    rest: Callable[[float], PlayedRest | None] = unheard
    quotas: Callable[[RunState], ev.QuotasShared | None] = unheard
    surplus: Callable[[RunState], tuple[str, ...]] = lambda _: ()
    shared: Callable[[RunState], bool] = never
    fits: Callable[[EventLog, ev.RentIntended, int], bool] = always
    bids: LiveBids | None = None


class Runner:
    """Runs a job on a provider's machines. A runner keeps nothing that the log does not contain."""

    def __init__(
        self,
        journal: Journal,
        environment: RunEnvironment,
        workload: Workload,
        rules: RunRules,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._journal = journal
        self._provider = environment.provider
        self._times = environment.lease_times
        self._workload = workload
        self._close = environment.close
        self._rules = rules
        self._executor = Executor(journal, environment, workload, retries, rules.fits)
        self._budget = BudgetCheck(
            journal,
            rules.tariff,
            environment.lease_times,
            rules.limits.budget,
            rules.limits.least,
            environment.held_price,
            rules.rest,
        )

        self._ending = EndOfRun(journal, environment, self._executor, rules.tariff, self._budget)
        # Machines that an earlier process ordered may not have been looked at in time.
        self._intents_before = journal.state.intents
        self._made: tuple[Strategy, StrategyTerms] | None = None

        # When the strategy decides next at the latest, and the facts of its last decision: new ones
        # call for a new one.
        self._decide_at = 0
        self._decided_on: object = None
        # It waits if it has no machines and wants none, for example while it hopes for spot before
        # a distant deadline.
        self._waits = self._short_of_money = False
        self._budget_set = journal.state.budget_set
        self._said: ev.Decided | None = None
        self._left = 1.0
        self._listed_while_stopping = False
        self._patience = Patience(rules.limits)
        self._stalled_since: int | None = None
        self._overdue_since: int | None = None
        self._rest_seconds = environment.list_every
        self._looked_at = self._watched_since = journal.now()

    @property
    def _strategy(self) -> tuple[Strategy, StrategyTerms]:
        """The strategy with its terms: made for the first decision, and again when the quotas have
        changed.
        """
        if self._made is None:
            self._made = self._rules.strategy()
        return self._made

    @property
    def state(self) -> RunState:
        """The state of the run that follows from its log."""
        return self._journal.state

    def run(
        self,
        pause: Callable[[], None],
        wall_us: Callable[[], int],
        before_end: Callable[[], None] = unheard,
    ) -> ev.RunEnded:
        """Runs to the end; `pause` is called between turns, and `before_end` before what is left is
        removed.
        """
        try:
            while not self._ending.over(listed=self._listed_while_stopping):
                self.turn()
                if not self._ending.over(listed=self._listed_while_stopping):
                    pause()
            before_end()
            return self._ending.write_end(
                wall_us(),
                self._workload,
                lambda: self._left if self._left < 1.0 else self._planned_share_left(),
            )
        except (LogFailed, BrokenLog) as error:
            raise type(error)(f"{error}; {self._executor.release()}") from error
        except Exception as error:
            # Whatever went wrong, no machine keeps running.
            error.add_note(self._executor.release())
            raise

    def turn(self) -> None:
        """One round of the loop."""
        stopping = self.state.stopping is not None
        self._listed_while_stopping = False
        try:
            machines = self._observe()
            self._listed_while_stopping = stopping and machines is not None
            unclear = self.state.unclear
            self._executor.settle()
            if self.state.unclear != unclear:
                # Machines of an order that got no answer are found by listing once more.
                machines = self._observe()
                self._listed_while_stopping = stopping and machines is not None
            self._advance(self._workload.turn(self.state, machines or (), self._journal.now()))
            if self._executor.unusable and not self.state.has_answered:
                self._stop(FAILED, self._executor.unusable)
            self._act()
            self._ending.record_prices()
        except (NotPermitted, NotHere) as error:
            self._listed_while_stopping = stopping
            self._bear(error)
            # The cloud refuses at once, and nothing else in this turn has taken time.
            time.sleep(self._rest_seconds)
        except BadRequest as error:
            # An unknown image, network or account: repeating the call does not help.
            self._stop(FAILED, str(error))
        except (NotInTime, OverBudget) as error:
            # The plan is refused. Resuming the run would not help: its plan is always that of its
            # start.
            self._stop(BUDGET if isinstance(error, OverBudget) else NOT_IN_TIME, str(error))
        except ProviderError as error:
            # Prices that are missing now may be there in the next turn; without prices no money is
            # spent.
            self._note_stall(error)
            time.sleep(self._rest_seconds)
        else:
            self._stalled_since = None
            if self.state.login is not None:
                self._journal.write(ev.LoginWorks())

    def _bear(self, refusal: NotPermitted | NotHere) -> None:
        """Goes on without the cloud while a login is waited for; otherwise ends the run, which may
        change nothing any more: machines that cannot be returned end with their leases."""
        # The run waits for a login until the first of its leases is about to end.
        now = self._journal.now()
        is_first = self.state.stopping is None
        leases = [held.lease_until for held in self.state.alive if not held.returning]
        if isinstance(refusal, LoginNeeded) and is_first and leases:
            until = min(leases) - self._times.notice
            if self.state.login is None and now < until:
                self._journal.write(ev.LoginAwaited(str(refusal), until))
            if now < until:
                # Machines keep working, although nothing is known about them and nothing can be
                # decided.
                self._advance(self._workload.turn(self.state, (), self._journal.now()))
                return

        self._stop(NOT_PERMITTED, str(refusal))
        if not is_first:
            self._ending.end_hidden(("",), ends_machines=True)

    def _note_stall(self, error: ProviderError) -> None:
        """Logs, once, why nothing can be decided; ends the run if this lasts."""
        now = self._journal.now()
        reason = f"nothing can be decided: {error}"
        most = self._rules.limits.without_machines

        if self._stalled_since is None:
            self._stalled_since = now
        if self.state.reason != reason:
            self._journal.write(ev.Decided((), reason))
        if now - self._stalled_since > most:
            self._stop(FAILED, f"for {(now - self._stalled_since) / MINUTE:.0f} minutes {reason}")

    def _observe(self) -> Sequence[Machine] | None:
        asked = self._journal.now()
        machines = self._executor.list_machines()
        if machines is not None:
            unlisted = self._executor.unlisted
            for event in observe.news(
                self.state, machines, self._journal.now(), self._provider.name, unlisted
            ):
                self._journal.write(event)
            for settled in observe.settled(self.state, asked, unlisted):
                self._journal.write(settled)

        if hidden := self._executor.unlisted:
            self._ending.end_hidden(hidden, ends_machines=self.state.stopping is not None)

        stood = self._provider.stood_seconds
        if stood - self.state.stood_seconds >= (
            NOTE_STANDING_SECONDS if self.state.stopping is None else 0.1
        ):
            self._journal.write(ev.ClockStood(stood))

        self._journal.catch_up()
        now = self._journal.now()
        if machines is None or hidden or now - self._looked_at > UNWATCHED:
            self._watched_since = now
        self._looked_at = now

        return machines

    def _advance(self, report: WorkReport) -> None:
        for event in report.events:
            self._journal.write(event)
        if report.progress is not None:
            self._journal.write(report.progress)
        if report.share_done is not None:
            self._left = max(1.0 - report.share_done, 0.0)

        if report.outcome is None:
            # The finished share of the work: as the work itself reports it, otherwise as the plan
            # considers it.
            share_done = report.share_done
            if share_done is None and (left := self._planned_share_left()) is not None:
                share_done = 1.0 - left
            self._budget.predict(share_done)
        else:
            self._stop(report.outcome, report.message, self._workload.facts())

        idle = tuple(
            name for name in report.idle_machines if not self.state.machines[name].returning
        )
        if idle:
            self._executor.carry_out(ReturnMachines(idle, "its work has ended"))

    def _planned_share_left(self) -> float | None:
        """The share of the work that the plan considers left; None if unknown, or before the plan
        is made.
        """
        return None if self._made is None else self._rules.share_left()

    def _stop(self, outcome: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        if self.state.stopping is None:
            request = ev.StopRequested(outcome, message, dict(facts or {}))
            if outcome == BUDGET:
                self._journal.write_within(request)
            else:
                self._journal.write(request)

    # -- decisions ---------------------------------------------------------------------------------

    def _act(self) -> None:
        """Carries out due instructions as far as the budget allows: upkeep first, then
        purchases."""
        if self.state.budget_set != self._budget_set:
            # What the run could not pay for before says nothing about what it can pay for now.
            self._budget_set = self.state.budget_set
            self._short_of_money = False
            self._patience.without_machines_since = None

        now = self._journal.now()
        stop = self.state.stopping
        self._carry_out(
            reconcile.repeated_returns(self.state, self._executor.running, now, self._times)
        )

        if stop is not None:
            # The workload has seen the request to stop, and has saved what it could.
            staying = tuple(held.id for held in self.state.alive if not held.returning)
            if staying:
                self._carry_out([ReturnMachines(staying, f"the run ends: {stop.outcome}")])
            return

        for held, why in boots.silent(self.state, self._times.teardown, now, self._watched_since):
            self._journal.write(ev.BootSilent(held.id, why, self._executor.console_end(held.id)))
        self._carry_out(self._budget.affordable(reconcile.upkeep(self.state, now, self._times)))
        self._budget.stop_in_time()
        if self.state.stopping is None and self._rules.bids is not None:
            self._carry_out(self._budget.affordable(self._rules.bids.of_machines()))
        if self.state.stopping is None:
            self._carry_out(self._budget.affordable(self._purchases(now)))

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Carries out the instructions that are still due after those before them."""
        before = self.state.intents
        for instruction in instructions:
            if isinstance(instruction, Buy) and self.state.stopping is not None:
                # A request to stop arrived while earlier instructions were carried out.
                continue
            if isinstance(instruction, ScheduleReturn) and instruction.replaced:
                # The orders of this turn must have brought all of their machines.
                orders = [order for number, order in self.state.orders.items() if number > before]
                if not orders or any(
                    len(self.state.of(order.intent)) < order.machines for order in orders
                ):
                    continue
            self._executor.carry_out(instruction)

    def _purchases(self, now: int) -> list[Instruction]:
        # Until the result of an order is known, another order could buy the same again; and until
        # it is known whether all machines have what made one of them end silently, another order
        # could buy the same fault again.
        state = self.state
        since = self._intents_before
        useless = state.useless(since)
        others_remain = any(not held.returning for held in state.alive)
        is_unproven = useless > 0 and not state.has_answered and others_remain
        if state.open_orders or is_unproven:
            return []

        shared = bool(state.denied) and self._rules.shared(state)
        limits = self._rules.limits
        fewest = limits.least if limits.shrinks else inf
        reach = Reach.of(state, self._executor.unlisted, since, shared=shared, fewest=fewest)

        # A run ends that has wanted machines for too long and got none, or none that answered.
        if useless >= boots.MAX_SILENT_MACHINES:
            self._stop(
                FAILED,
                f"{useless} machines in a row "
                f"{boots.never_answered(self.state, self._executor.silence)}",
            )
            return []
        if any(held.silence for held in self.state.alive):
            # A silent machine is gone before it is replaced.
            return []

        terms = self._strategy[1]
        failure = self._executor.failure
        over = self._patience.blocked(self.state, reach, terms, now, failure, since)
        over = over or self._patience.without_machines(
            self.state, now, waits=self._waits, short=self._short_of_money
        )
        if over is not None:
            self._stop(over.outcome, over.message)
        if self.state.stopping is not None:
            return []

        return [
            instruction
            for instruction in self._decide(reach, now)
            if not isinstance(instruction, Buy) or reach.sells(instruction.rent)
        ]

    def _decide(self, reach: Reach, now: int) -> list[Instruction]:
        self._follow_queue(now)
        state = self.state
        if state.waits and (state.began is None or state.began.deadline is None):
            # Without spot machines, only a deadline asks for others.
            self._waits = True
            return []

        _, terms = self._strategy
        # Nodes that must be close together may not be had one after the other.
        one_at_first = list if self._close else partial(reconcile.one_at_first, self.state)
        reliable = one_at_first(reconcile.missing_reliable(self.state, terms, now))
        held = sum(
            self.state.allocations[machine.allocation].reliable for machine in self.state.alive
        )
        why = f"reliable machines keep the state of the training, and {held} are held"
        if reliable and self.state.reason != why:
            self._journal.write(ev.Decided(tuple(map(described, reliable)), why))

        # What a decision depends on, besides the prices.
        facts = (
            [(number, len(self.state.of(number))) for number in self.state.allocations],
            [held.id for held in self.state.alive if held.leaves_at is not None],
            [held.id for held in self.state.alive if held.warned_until is not None],
            [market for market, back_off in self.state.back_offs.items() if now < back_off.until],
            self._executor.unlisted,
            boots.clouds_that_answer(self.state),
            self.state.budget_set,
        )

        if facts == self._decided_on and now < self._decide_at and not self._executor.crowded:
            return reliable

        # The next order may fit.
        was_crowded = self._executor.crowded
        self._executor.crowded = False
        left = self._planned_share_left() if self._left >= 1.0 else self._left
        least = self._rules.limits.least
        if left == 0:
            self._overdue_since = now if self._overdue_since is None else self._overdue_since

        # A job that takes much longer than planned is decided on like any other.
        overdue = (
            self._overdue_since is not None and now - self._overdue_since >= self._times.startup
        )
        if (
            left is not None
            and not overdue
            and reconcile.nearly_done(self.state, left, now, self._times, least)
        ):
            return reliable

        strategy, terms = self._strategy
        terms = reach.within(replace(terms, offers=()) if state.waits else terms)
        situation = reconcile.situation(
            self.state,
            terms,
            lambda offer: self._rules.tariff.prices(offer.market, now).price_at(now),
            now,
            self._times,
            self._left,
        )

        warned = any(held.warned_until is not None for held in self.state.alive)
        if not situation.offers and not situation.holdings and warned:
            # The strategy decides after the evictions: until then, only on-demand machines are left
            # to choose from.
            return reliable

        decision = strategy.decide(situation)
        latest = now + DECIDE_EVERY
        self._decide_at = latest if decision.wake_at is None else min(latest, decision.wake_at)
        self._decided_on = facts
        self._waits = not decision.actions and not decision.unaffordable
        self._short_of_money = decision.unaffordable
        actions = reconcile.actions_of(self.state, decision, now, self._times)
        actions = one_at_first([*reliable, *actions])[len(reliable) :]

        if actions:
            bought = (action.rent for action in actions if isinstance(action, Buy))
            departures = tuple(text for rent in bought if (text := terms.departure(rent, now)))
            said = ev.Decided(tuple(map(described, actions)), decision.reason, departures)
            if not was_crowded or said != self._said:
                self._journal.write(said)
            self._said = said

        return [*reliable, *actions]

    def _follow_queue(self, now: int) -> None:
        """Plans within the run's parts of the quotas from now on; machines that exceed them are
        given to other jobs, like those that are evicted with notice."""
        parts = self._rules.quotas(self.state)
        if parts is not None:
            self._journal.write(parts)
            self._made = self._decided_on = None

        by_allocation = dict[int, list[str]]()
        for name in self._rules.surplus(self.state):
            by_allocation.setdefault(self.state.machines[name].allocation, []).append(name)
        at = now + self._times.notice
        returns = [
            ScheduleReturn(number, at, tuple(each)) for number, each in by_allocation.items()
        ]

        if returns:
            given = "other jobs of the queue get these machines"
            self._journal.write(ev.Decided(tuple(map(described, returns)), given))
            self._carry_out(returns)

    @property
    def starting(self) -> str:
        """The reason why a machine does not work yet; empty if all work."""
        return self._executor.starting

    @property
    def awaited(self) -> str:
        """The thing that the end waits for once all machines are gone; before that, why a cloud
        does not answer.
        """
        return self._ending.awaited or (self._executor.failure if self._executor.unlisted else "")
