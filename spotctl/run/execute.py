"""Calls that change something: written down, made, and their outcome written down.

A call that got no answer may have come through. Its intent stays open, and is repeated with the token that it had,
from which the provider knows it; nothing else is bought while it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import stamina

from spotctl.machines.base import (
    CloudProvider,
    Machine,
    MachineRequest,
    MachineState,
    NotFound,
    NotPermitted,
    ProviderError,
    Throttled,
    Unanswered,
)
from spotctl.machines.tags import INTENT_TAG, RUN_TAG
from spotctl.run.reconcile import Buy, GiveBack, Instruction, Pace, Plan, Renew
from spotctl.run.workload import Workload
from spotctl.runlog import events as ev
from spotctl.runlog.budget import LISTING_DELAY
from spotctl.runlog.events import Event, Intended
from spotctl.runlog.state import ABANDONED, after, fold
from spotctl.runlog.store import EventLog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a call is repeated at once, and how long the first pause is, in seconds of this computer's clock."""

    attempts: int = 4
    first_pause: float = 0.2
    longest_pause: float = 5.0


class Journal:
    """A run's log and the state that it tells, kept together."""

    def __init__(self, log: EventLog, run: str, clock: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self.run = run
        self.state = fold(log.of_run(run))

    def now(self) -> int:
        """The provider's clock, which for the log never goes back."""
        return max(self._clock(), self.state.at)

    def write(self, event: Event) -> None:
        """Writes an event down; then the state knows of it."""
        self.catch_up()
        self.state = after(self.state, self._log.append(self.run, self.now(), event))

    def catch_up(self) -> None:
        """Takes in what others wrote: a wish to stop comes from another process."""
        self.state = fold(self._log.of_run(self.run, self.state.last_row), self.state)


class Executor:
    """Carries out instructions."""

    def __init__(
        self,
        journal: Journal,
        provider: CloudProvider,
        workload: Workload,
        pace: Pace,
        patience: Patience,
    ) -> None:
        self._journal = journal
        self._provider = provider
        self._pace = pace
        self._workload = workload
        self._patience = patience

    def carry_out(self, instruction: Instruction) -> None:
        """Does what is wanted; raises NotPermitted where nothing can be done any more."""
        match instruction:
            case Plan():
                self._journal.write(ev.LeavePlanned(instruction.allocation, instruction.at))
            case Buy() | Renew() | GiveBack():
                self._begin(self._intent(instruction))

    def settle(self) -> None:
        """Repeats what was begun and has no outcome yet."""
        for intent in list(self._journal.state.open.values()):
            if isinstance(intent, ev.RentIntended) and self._is_moot(intent):
                self._abandon(intent)
            elif isinstance(intent, ev.RenewIntended) and self._is_superseded(intent):
                # Made now, it would move leases back.
                self._journal.write(ev.Renewed(intent.intent))
            else:
                self._finish(intent, repeated=True)

    def _is_moot(self, order: ev.RentIntended) -> bool:
        """Whether nobody wants the machines of an order any more: what of them came will be found by looking."""
        return self._journal.state.stopping is not None or self._journal.now() >= order.lease_until

    def _is_superseded(self, renewal: ev.RenewIntended) -> bool:
        """Whether later renewals have moved the same leases at least as far."""
        held = (self._journal.state.machines[name] for name in renewal.machines)
        return all(not one.alive or one.lease_until >= renewal.lease_until for one in held)

    def _abandon(self, order: ev.RentIntended) -> None:
        if self._journal.now() > order.lease_until - self._pace.lease + LISTING_DELAY:
            why = "nobody answered the order while it was wanted"
            self._journal.write(ev.RentRefused(order.intent, ABANDONED, why))

    def look(self) -> tuple[Machine, ...] | None:
        """The run's machines; None while the provider does not say."""
        return self.asked(lambda: self._provider.list({RUN_TAG: self._journal.run}))

    def let_go(self) -> None:
        """Gives back what is known of the run, and what is found, and writes nothing down: doing so twice is no error.

        What cannot be given back now ends with its lease.
        """
        with suppress(ProviderError):
            found = self.look() or ()
            known = [held.id for held in self._journal.state.alive]
            machines = dict.fromkeys([*known, *(one.id for one in found if one.state is not MachineState.GONE)])
            if machines:
                self.asked(lambda: self._provider.terminate(tuple(machines)))

    def _intent(self, instruction: Buy | Renew | GiveBack) -> Intended:
        number = self._journal.state.intents + 1
        match instruction:
            case Buy(rent, reliable):
                offer, until = rent.offer, self._journal.now() + self._pace.lease
                return ev.RentIntended(
                    number, offer.market, rent.machines, rent.bid, offer.on_demand, offer.nu, reliable, until
                )
            case Renew(machines, until):
                return ev.RenewIntended(number, machines, until)
            case GiveBack(machines, reason):
                return ev.ReturnIntended(number, machines, reason)

    def _begin(self, intent: Intended) -> None:
        self._journal.write(intent)
        self._finish(intent)

    def _finish(self, intent: Intended, *, repeated: bool = False) -> None:
        match intent:
            case ev.RentIntended():
                outcome = self._rent(intent, repeated=repeated)
            case ev.RenewIntended():
                outcome = self._renew(intent)
            case ev.ReturnIntended():
                given = self.asked(lambda: self._given_back(intent))
                outcome = None if given is None else ev.Returned(intent.intent)
        if outcome is not None:
            self._journal.write(outcome)

    def _rent(self, intent: ev.RentIntended, *, repeated: bool) -> Event | None:
        unanswered = repeated

        def call() -> tuple[Machine, ...]:
            nonlocal unanswered
            try:
                return self._provider.create(self._order(intent))
            except Unanswered:
                unanswered = True
                raise

        try:
            machines = self.asked(call, refusals=(ProviderError,))
        except ProviderError as error:
            # An earlier call, of which nobody heard, may have come through all the same.
            why = ABANDONED if unanswered else type(error).__name__
            self._journal.write(ev.RentRefused(intent.intent, why, str(error)))
            if isinstance(error, NotPermitted):
                raise
            return None
        if machines is None:
            return None
        return ev.Rented(intent.intent, tuple(ev.Granted(machine.id, machine.started) for machine in machines))

    def _renew(self, intent: ev.RenewIntended) -> Event | None:
        def call() -> bool:
            try:
                self._provider.renew(intent.machines, intent.lease_until)
            except NotFound:
                # The others are renewed; that these are gone, the next look will show.
                return True
            return True

        return None if self.asked(call) is None else ev.Renewed(intent.intent)

    def _given_back(self, intent: ev.ReturnIntended) -> bool:
        self._provider.terminate(intent.machines)
        return True

    def _order(self, intent: ev.RentIntended) -> MachineRequest:
        run = self._journal.run
        tags = {RUN_TAG: run, INTENT_TAG: str(intent.intent)}
        return MachineRequest(
            f"{run}-{intent.intent}",
            intent.market,
            intent.machines,
            intent.bid,
            intent.lease_until,
            tags,
            self._workload.payload(intent),
            self._workload.secrets(),
        )

    def asked(self, call: Callable[[], T], refusals: tuple[type[ProviderError], ...] = (NotPermitted,)) -> T | None:
        """The answer to a call, repeated with growing pauses; None if there is none for now. Refusals are raised."""
        patience = self._patience
        try:
            for attempt in stamina.retry_context(
                on=(Throttled, Unanswered),
                attempts=patience.attempts,
                wait_initial=patience.first_pause,
                wait_max=patience.longest_pause,
                timeout=None,
            ):
                with attempt:
                    return call()
        except (Throttled, Unanswered):
            return None
        except refusals:
            raise
        except ProviderError:
            # What is wrong with it may be over when it is tried again, in the next turn.
            return None
        return None
