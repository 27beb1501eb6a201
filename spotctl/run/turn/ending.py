"""The end of a run: when it gives up, when its last machine is gone, what it left, and what it
cost.

A run without machines gives up at once where waiting cannot help, else after a while.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from bidbrain.strategies.base import Rent
from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND, moment
from spotctl.agent.data.transfer import PATIENCE_SECONDS
from spotctl.agent.errors import AgentError, TransferFailed
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.provider import Resource
from spotctl.log import budget, events as ev
from spotctl.log.budget import Tariff
from spotctl.log.events import StopRequested
from spotctl.log.ledger.project import priced, unrecorded
from spotctl.log.ledger.rows import SameWork
from spotctl.log.ledger.same_work import same_work
from spotctl.log.outcomes import BUDGET, DONE, FAILED, NO_CAPACITY, NOT_PERMITTED
from spotctl.log.state import LEASE_ENDED, RunState, covers
from spotctl.run.environment import RunEnvironment
from spotctl.run.turn import observe
from spotctl.run.turn.budget_check import BudgetCheck, exhausted, unfinished_text
from spotctl.run.turn.execute import Executor, Journal
from spotctl.run.turn.observe import hidden
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.work.workload import Workload

REMOVAL_PATIENCE = 3 * MINUTE
"""How long a cloud may fail before a run leaves its remaining resources, which cost nothing, to
`spotctl gc`."""

STORE_PATIENCE = round(PATIENCE_SECONDS) * SECOND
"""How long an object store may fail at the end of a run: less than the lease of a machine on which
its runner lives."""

LONGEST_PAUSE = 30
"""Seconds of the provider's clock between two attempts; the first pause is one second."""

BUSY_SHARE, LATE = 0.1, 1.1
"""A run is late by more than this factor of its planned hours, and the computer is a cause of it if
the market's clock has stood for more than this share of the time."""

WAIT_WITHOUT_ANSWER = 5 * MINUTE
"""How long a run that has had no machine yet waits for clouds that do not answer."""


class EndOfRun:
    """Says when a run is over, and writes its end to the log."""

    def __init__(
        self,
        journal: Journal,
        environment: RunEnvironment,
        executor: Executor,
        tariff: Tariff,
        check: BudgetCheck,
    ) -> None:
        self._journal = journal
        self._provider = environment.provider
        self._speed = environment.provider.speed
        self._began = time.monotonic(), environment.provider.stood_seconds
        self._rented = environment.rented
        self._teardown = environment.lease_times.teardown
        self._executor = executor
        self._tariff = tariff
        self._budget = check
        self.awaited = ""
        """The thing that the end waits for once all machines are gone, and until when."""

    def over(self, *, listed: bool) -> bool:
        """Whether all machines are gone. `listed`: the provider was asked after the request to
        stop, so its answer also shows machines whose order was never answered.

        A cloud that does not answer is waited for until the leases are over.
        """
        state = self._journal.state
        if state.ended is not None:
            return True
        over = self._journal.now() - self._teardown
        # Once the first leases of all orders are over, their machines have ended unless renewed.
        leases_over = all(order.lease_until <= over for order in state.orders.values())
        known = listed or (state.stopping is not None and leases_over)
        return known and not state.alive and not state.open_orders

    def record_prices(self) -> None:
        """Logs the prices of spot machines as they change, so that every copy of the log says what
        the run costs.
        """
        try:
            news = unrecorded(self._journal.state, self._journal.now(), self._tariff)
        except (ProviderError, PricingDataError):
            # Missing prices are tried again in the next turn.
            return
        for prices in news:
            self._journal.write(prices)

    def write_end(
        self, wall_us: int, workload: Workload, work_left: Callable[[], float | None]
    ) -> ev.RunEnded:
        """Removes what is left in the cloud, stores the results and writes the end, once.

        `work_left` returns the share of the work that is left, None if unknown.
        """
        if self._journal.state.ended is None:
            stop = self._journal.state.stopping
            assert stop is not None
            outcome, missing = self._store(workload, stop.outcome)
            left = self._remove_leftovers() if self._rented and self._journal.state.orders else ()
            recorded = {**stop.facts, **workload.facts()}
            costs = self._costs(outcome)
            message = stop.message + missing
            if left is None:
                message += "; what is left of it in the cloud could not be listed: run spotctl gc"
            elif left:
                names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
                message += f"; {names} could not be removed: run spotctl gc"
            if outcome != DONE and (share_left := work_left()) is not None:
                recorded["work_left"] = share_left
            if stop.outcome == BUDGET:
                # The work that is left, its checkpoint, and the dollars that would finish the job.
                share_left = recorded.get("work_left")
                more = None if share_left is None else self._budget.to_finish(share_left)
                recorded |= {} if more is None else {"to_finish_usd": more}
                message = f"{message}{unfinished_text(recorded)}"
            if left_plan := self._left_plan():
                recorded["left_plan"] = left_plan
            if costs is not None:
                amounts, proofs = costs
                recorded |= amounts
                for prices in proofs:
                    self._journal.write(prices)
            self._journal.write(ev.RunEnded(outcome, message, wall_us, recorded))

        assert self._journal.state.ended is not None
        return self._journal.state.ended

    def _left_plan(self) -> list[str]:
        """How the run left its plan, and whether the computer of a local market was a cause."""
        state = self._journal.state
        departures = list(state.left_plan)
        planned = state.planned
        begun, stood_before = self._began
        took = time.monotonic() - begun
        stood = self._provider.stood_seconds - stood_before
        hours = (self._journal.now() - state.started) / HOUR
        if planned is None or planned.assumed or hours <= planned.hours * LATE:
            return departures

        if stood > BUSY_SHARE * took:
            departures.append(
                f"other programs kept this computer busy for {stood:.0f} of {took:.0f} s: the run "
                f"took {hours:.1f} hours of market time instead of {planned.hours:.1f}"
            )
        return departures

    def _store(self, workload: Workload, outcome: str) -> tuple[str, str]:
        """Stores the results, trying again while a store fails; returns the outcome, and an
        addition to its message.
        """
        is_noted = False
        for is_last in self._attempts(STORE_PATIENCE, "its results to be stored"):
            try:
                workload.store(outcome)
            except AgentError as error:
                if is_last:
                    is_lost = outcome == DONE and isinstance(error, TransferFailed)
                    return FAILED if is_lost else outcome, f"; {error}"
                if not is_noted:
                    self._journal.write(
                        ev.Decided((), f"all machines are returned; trying again: {error}")
                    )
                    is_noted = True
            else:
                break

        return outcome, ""

    def _remove_leftovers(self) -> tuple[Resource, ...] | None:
        """Returns what of the run could not be removed from the cloud, None if that is not
        known."""
        for is_last in self._attempts(
            REMOVAL_PATIENCE, "what is left of it in the cloud to be removed"
        ):
            left, may_pass = self._executor.remove_leftovers()
            if is_last or not may_pass:
                break
        return left

    def _attempts(self, patience: int, awaited: str) -> Iterator[bool]:
        """Pauses between attempts, for at most `patience`; says of each whether it is the last."""
        until = self._journal.now() + patience
        clock = " of the market's clock" if self._journal.state.is_replayed else ""
        self.awaited = f"{awaited}, tried until {moment(until)}{clock}"
        pause = 1
        while self._journal.now() < until:
            yield False
            time.sleep(pause / self._speed)
            pause = min(2 * pause, LONGEST_PAUSE)
        yield True

    def end_hidden(self, unlisted: tuple[str, ...], *, ends_machines: bool) -> None:
        """Settles orders without an answer where no machine can be listed: any machine that they
        brought has ended by the end of its lease. So have those that are known, if the run `ends`
        them."""
        over = self._journal.now() - self._teardown
        for held in self._journal.state.alive if ends_machines else ():
            if held.id.startswith(unlisted) and over >= held.lease_until:
                self._journal.write(ev.MachineEnded(held.id, held.lease_until, LEASE_ENDED))

        for intent in self._journal.state.unclear:
            order = self._journal.state.orders[intent]
            if observe.hidden(order.market, unlisted) and over >= order.lease_until:
                self._journal.write(ev.OrderSettled(intent))

    def _costs(self, outcome: str) -> tuple[dict[str, Any], tuple[ev.Priced, ...]] | None:
        """The amount paid and the on-demand price of the same work, and the prices that prove them,
        for the log. Why an on-demand price is unknown is there, too.

        None if the provider no longer has the prices.
        """
        now = self._journal.now()

        def count() -> tuple[dict[str, Any], tuple[ev.Priced, ...]]:
            work = SameWork() if outcome == FAILED else same_work(self._journal.state, now)
            instead = None if work.unknown else work.amount
            amounts = {
                "spent": budget.spent(self._journal.state, now, self._tariff),
                "on_demand": instead,
            }
            why = {"on_demand_unknown": work.unknown} if work.unknown else {}
            return amounts | why, tuple(priced(self._journal.state, now, self._tariff))

        try:
            return self._executor.retry(count)
        except ProviderError:
            return None


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a run can get machines. `closed` has pairs of a market and whether spot is meant, that
    do not exist for the account, for which the quota holds no machine, or which refuse for an
    unknown reason; and the scope of each. `silent` are the beginnings of the ids of machines that
    cannot be listed. In `dead` zones machines never answered, so others are preferred."""

    closed: Mapping[tuple[Market, bool], str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    dead: Set[tuple[str, str, str]] = frozenset()

    @classmethod
    def of(
        cls,
        state: RunState,
        silent: tuple[str, ...],
        since: int = 0,
        *,
        shared: bool = False,
        fewest: float = inf,
    ) -> "Reach":
        """The reach of a run. If the account is `shared` with another run, a quota that is used up
        may be free again later. A quota that is too small for an order may still hold the `fewest`
        machines that the job needs. Only unknown reasons of orders after number `since` count."""
        missing = {
            key: back_off.scope for key, back_off in state.back_offs.items() if not back_off.exists
        }
        refused = {key: state.refused[key] for key in (frozenset() if shared else state.denied)}
        denied = {
            key: refusal.scope for key, refusal in refused.items() if refusal.machines <= fewest
        }

        # Where machines were silent and none has answered: clouds, regions and zones.
        zones: dict[bool, set[tuple[str, str, str]]] = {True: set(), False: set()}
        for held in state.machines.values():
            market = state.allocations[held.allocation].market
            if held.useless or held.ran is not None:
                zones[held.useless].add((market.cloud, market.region, market.zone))

        closed = {**puzzling(state, since), **denied, **missing}
        return cls(closed, silent, frozenset(zones[True] - zones[False]))

    def admits(self, market: Market, *, spot: bool) -> bool:
        """Whether an order may bring machines of a market."""
        return not hidden(market, self.silent) and not any(
            side is spot and covers(scope, refused, market)
            for (refused, side), scope in self.closed.items()
        )

    def within(self, terms: StrategyTerms) -> StrategyTerms:
        """The terms with the offers that can be had."""
        offers = tuple(offer for offer in terms.offers if self.admits(offer.market, spot=True))
        places = {
            offer: (offer.market.cloud, offer.market.region, offer.market.zone) for offer in offers
        }
        alive = tuple(offer for offer in offers if places[offer] not in self.dead)
        return replace(terms, offers=alive or offers)

    def blocks(self, state: RunState, terms: StrategyTerms) -> bool:
        """Whether a run that lacks machines cannot get any: no spot machines, nor those on demand
        in their place.
        """
        held = {state.allocations[machine.allocation].reliable for machine in state.alive}
        if terms.reliable is not None and True not in held and not self.sells(terms.reliable):
            return True
        spot = any(self.admits(offer.market, spot=True) for offer in terms.offers)
        return not (False in held or spot or self.sells(terms.baseline))

    def sells(self, rent: Rent) -> bool:
        """Whether an order of these machines can be carried out."""
        return self.admits(rent.offer.market, spot=rent.bid is not None)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """When to give up: the job's budget in nano-dollar-seconds, and how long (microseconds) to wait
    for any machine.

    The job cannot work with fewer than `least` machines. If it `shrinks`, refused orders are
    repeated for fewer.
    """

    budget: int | None = None
    without_machines: int = HOUR
    least: int = 1
    shrinks: bool = False


@dataclass(slots=True)
class Patience:
    """Since when a run has had no machines although it wanted some, and since when it cannot get
    any.
    """

    limits: RunLimits
    without_machines_since: int | None = None
    blocked_since: int | None = None

    def without_machines(
        self, state: RunState, now: int, *, waits: bool, short: bool
    ) -> StopRequested | None:
        """The end of a run that got no machine for too long. A run `waits` if it wants none now,
        and may be `short` of money."""
        alive = state.alive
        if short:
            # Reliable machines alone cost money and do nothing.
            alive = tuple(held for held in alive if not state.allocations[held.allocation].reliable)

        if alive or waits:
            self.without_machines_since = None
            return None

        if self.without_machines_since is None:
            self.without_machines_since = now
        since = self.without_machines_since
        if now - since <= self.limits.without_machines:
            return None

        limit = state.limit(self.limits.budget)
        if short and limit is not None:
            return StopRequested(BUDGET, exhausted(limit))

        last = f" (the last refusal: {state.refusal})" if state.refusal else ""
        minutes = (now - since) / MINUTE
        message = (
            f"no market offered a machine for {minutes:.0f} minutes; allow more types or "
            f"regions{last}"
        )
        return StopRequested(NO_CAPACITY, message)

    def blocked(
        self,
        state: RunState,
        reach: Reach,
        terms: StrategyTerms,
        now: int,
        failure: str,
        since: int,
    ) -> StopRequested | None:
        """The end of a run that the account allows no machine, or whose clouds do not answer:
        `failure` says why.
        """
        if not reach.blocks(state, terms):
            self.blocked_since = None
            return None
        if replace(reach, silent=()).blocks(state, terms):
            if puzzling(state, since):
                message = (
                    "refused twice for a reason that spotctl does not know, so nothing more is "
                    "ordered"
                )
                return StopRequested(FAILED, f"{message}: {state.refusal}")
            message = (
                f"the account may rent none of the machines that the job needs: {state.refusal}"
            )
            ruled = "organisation" in reach.closed.values()
            return StopRequested(NOT_PERMITTED if ruled else NO_CAPACITY, message)

        if self.blocked_since is None:
            self.blocked_since = now
        blocked = now - self.blocked_since
        if blocked <= (self.limits.without_machines if state.machines else WAIT_WITHOUT_ANSWER):
            return None

        message = (
            f"the job's regions have not answered for {blocked / MINUTE:.0f} minutes: {failure}"
        )
        return StopRequested(NO_CAPACITY, message)


def puzzling(state: RunState, since: int) -> dict[tuple[Market, bool], str]:
    """The regions that are not asked again, because two orders in one region were refused with the
    same code, which is in no table: that region, and each other that answered with the code once.
    Nothing is as long as machines work."""
    codes = {state.orders[intent]: code for intent, code in state.unknown.items() if intent > since}
    counts = Counter(
        (code, order.market.cloud, order.market.region) for order, code in codes.items()
    )
    final = {code for (code, *_), count in counts.items() if count > 1}
    working = any(not state.allocations[held.allocation].reliable for held in state.alive)
    closed = [order.market for order, code in codes.items() if code in final and not working]
    return {(market, spot): "region" for market in closed for spot in (True, False)}
