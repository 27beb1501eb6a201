"""Carries out instructions: logs each change before it is requested from the provider, and its
outcome afterwards.

A request without an answer may have succeeded. Its intent stays open, and is repeated with the same
token, by which the provider recognizes the request. Nothing else is rented meanwhile.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar, TypeVarTuple

import stamina

from bidbrain.strategies.base import Rent
from pricing_data.units import SECOND
from spotctl.clouds.boot import first_lease
from spotctl.clouds.errors import (
    MADE_WITHIN,
    ErrorAction,
    NotFound,
    NotHere,
    NotPermitted,
    NotSent,
    NotYet,
    PartlyListed,
    ProviderError,
    Scope,
    Unanswered,
    Unusable,
    action_for,
    as_far_as_listed,
    unknown_code,
)
from spotctl.clouds.provider import EndReason, Machine, MachineRequest, MachineState, Resource
from spotctl.home.callbacks import always
from spotctl.home.cloud import mapped_ports
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.log import events as ev
from spotctl.log.budget import LISTING_DELAY
from spotctl.log.events import Event, Intended
from spotctl.log.folding import ABANDONED, fold
from spotctl.log.store import EventLog
from spotctl.run.environment import RunEnvironment
from spotctl.run.machine_output import KeptOutput
from spotctl.run.turn.reconcile import (
    Buy,
    Instruction,
    RaiseBid,
    Renew,
    ReturnMachines,
    ScheduleReturn,
)
from spotctl.run.work.workload import Workload

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

NOT_YET_PAUSE = 5 * SECOND
"""Time between two orders that the cloud refuses because it does not know something yet."""

_RELEASE_ROUNDS = 8
"""How often machines are returned and listed again when a run breaks off."""

_CONSOLE_LINES, _CONSOLE_WIDTH = 4, 120
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""The part of a machine's console that a message quotes, and the terminal's codes in it."""

_NOT_REPEATED = (NotPermitted, NotHere, PartlyListed)
"""Errors of a list that are not asked again at once: the answer would be the same."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is sent within a turn, and the seconds (of this computer's clock) between
    attempts.
    """

    attempts: int = 4
    first_pause: float = 0.2
    longest_pause: float = 5.0


class Journal:
    """The log of a run, together with the state that follows from it, and the `RunState.budget_set`
    for which orders and renewals were `decided_on`."""

    def __init__(self, log: EventLog, run: str, clock: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self.run = run
        self.state = fold(log.of_run(run))
        self.decided_on = self.state.budget_set

    def now(self) -> int:
        """The provider's clock, which in the log never goes back."""
        return max(self._clock(), self.state.at)

    def write(self, event: Event) -> None:
        """Appends the event to the log, then updates the state, including events that other
        processes wrote before.
        """
        self._log.append(self.run, self.now(), event)
        self.catch_up()

    def write_within(self, event: Event, holds: Callable[[EventLog, int], bool] = always) -> bool:
        """Appends an event that follows from the budget, if that is still the one that was
        `decided_on`: otherwise the next turn decides again. An order must also fit next to what
        other runs hold, which `holds` says: no run orders meanwhile."""
        now = self.now()

        def still_holds() -> bool:
            state = fold(self._log.of_run(self.run, self.state.last_row), self.state)
            return state.budget_set == self.decided_on and holds(self._log, now)

        row = self._log.append_if(self.run, now, event, still_holds)
        self.catch_up()
        return row is not None

    def catch_up(self) -> None:
        """Reads events that other processes wrote, such as a request to stop."""
        self.state = fold(self._log.of_run(self.run, self.state.last_row), self.state)


def request_of(
    order: ev.RentIntended, environment: RunEnvironment, workload: Workload
) -> MachineRequest:
    """The request that carries out an order: the same for every attempt, in every process of the
    run.
    """
    run = environment.run
    image = environment.image
    market = order.market
    supplies = workload.supplies()
    own = {INSTALLATION_TAG: environment.installation, RUN_TAG: run, INTENT_TAG: str(order.intent)}
    tags = {**environment.labels, **own}
    ports = supplies.ports if environment.rented and mapped_ports(market.cloud) else ()

    # A job file that was changed since may not name it any more; the market's name is a plain id.
    reservation = market.reservation
    block = False
    reserved = environment.reservations.get(market.reservation)
    if reserved is not None:
        reservation = reserved.id
        block = reserved.block

    return MachineRequest(
        f"{run}-{order.intent}",
        market,
        order.machines,
        order.bid,
        order.lease_until,
        tags,
        workload.payload(order),
        supplies.secrets,
        image.of(market.cloud),
        environment.machine_identity.get(market.cloud),
        image.disk_gib,
        containers=image.container is not None,
        # A reliable machine keeps the runner, and is no node.
        close=environment.close and not order.reliable,
        reservation=reservation,
        block=block,
        ports=ports,
    )


def _may_succeed(error: Exception) -> bool:
    """Whether the same call may succeed if it is repeated at once."""
    return isinstance(error, SpotctlError) and action_for(error) is ErrorAction.RETRY


class Executor:
    """Carries out instructions for one run. `silence` is the reason why an agent last did not
    answer, `starting` what a listed machine waits for, `unusable` why a machine will never work,
    and `failure` why a call to the provider was last given up, or answered in part. The last order
    was not sent if the quotas were `crowded` by other runs."""

    def __init__(
        self,
        journal: Journal,
        environment: RunEnvironment,
        workload: Workload,
        retries: RetryPolicy | None = None,
        fits: Callable[[EventLog, ev.RentIntended, int], bool] = always,
    ) -> None:
        self._journal = journal
        self._provider = environment.provider
        self._workload = workload
        self._retries = retries or RetryPolicy()
        self._fits = fits
        self.crowded = False
        self._listed: tuple[Machine, ...] = ()
        """The provider's last list; machines that an earlier list had, where this one could not
        look, are kept."""
        self._listed_in: tuple[int, tuple[int, ...], bool] | None = None
        """The situation of that list: number of intents, unclear orders, whether the run stops."""
        self._listed_until = 0.0
        self._ask_again: dict[int, int] = {}
        """When orders are sent again that the cloud refused because it does not know something
        yet."""
        self.unlisted: tuple[str, ...] = ()
        """The beginnings of the ids of machines that the last list does not cover; `""` if there
        was none."""
        self.silence = self.starting = self.unusable = self.failure = ""
        self._kept = None if environment.output is None else KeptOutput(environment.output)
        self._environment = environment
        self._tags = {INSTALLATION_TAG: environment.installation, RUN_TAG: journal.run}

    def carry_out(self, instruction: Instruction) -> None:
        """Carries out an instruction. NotPermitted: the provider allows no more changes.
        BadRequest: the provider does not have what the job asks for."""
        journal = self._journal
        number = journal.state.intents + 1
        intent: Intended
        match instruction:
            case ScheduleReturn(allocation, at, machines):
                # Machines may leave because the budget does not cover another lease.
                journal.write_within(ev.ReturnScheduled(allocation, at, machines))
                return
            case Buy(rent, reliable):
                intent = self._ordered(number, rent, reliable=reliable)
            case Renew(machines, until):
                intent = ev.RenewIntended(number, machines, until)
            case RaiseBid(machine, bid, why):
                intent = ev.BidIntended(number, machine, bid, why)
            case ReturnMachines(machines, reason):
                intent = ev.ReturnIntended(number, machines, reason)

        # What commits dollars is written only within the budget, whichever kind it is.
        is_written = True
        if isinstance(intent, ev.RentIntended):
            order = intent
            is_written = journal.write_within(order, lambda log, now: self._fits(log, order, now))
            self.crowded = not is_written
        elif intent.commits:
            is_written = journal.write_within(intent)
        else:
            journal.write(intent)

        if is_written:
            self._finish(intent)

    def settle(self) -> None:
        """Repeats requests that have no outcome yet."""
        for intent in list(self._journal.state.open.values()):
            stops = self._journal.state.stopping is not None
            now = self._journal.now()
            if isinstance(intent, ev.RentIntended) and (stops or now >= intent.lease_until):
                # Its machines are not needed any more; those that were created show up in the list.
                if now > self._journal.state.ordered[intent.intent] + LISTING_DELAY:
                    message = "the provider did not answer the order in time"
                    self._journal.write(ev.RentRefused(intent.intent, ABANDONED, message))
            elif isinstance(intent, ev.RenewIntended) and all(
                not held.alive or held.lease_until >= intent.lease_until
                for held in map(self._journal.state.machines.__getitem__, intent.machines)
            ):
                # Later renewals extended the same leases at least as far: sent now, it would
                # shorten them.
                self._journal.write(ev.Renewed(intent.intent))
            elif isinstance(intent, ev.BidIntended):
                # The next list shows whether it was raised: the market has moved on since.
                continue
            elif now >= self._ask_again.get(intent.intent, 0):
                self._finish(intent, repeated=intent.intent not in self._ask_again)

    def list_machines(self) -> tuple[Machine, ...] | None:
        """The run's machines, with what their agents say; None while the provider does not answer.

        A cloud limits calls, so its list is kept for a while, unless the run has changed something
        since. Agents are asked each time.
        """
        state = self._journal.state
        now = time.monotonic()
        situation = state.intents, tuple(state.unclear), state.stopping is not None
        if self._listed_in != situation or now >= self._listed_until:
            unlisted: tuple[str, ...] = ()
            try:
                machines = self.retry(self._provider.list, self._tags, refusals=_NOT_REPEATED)
            except PartlyListed as error:
                unlisted = error.parts
                machines = (
                    *error.listed,
                    *(machine for machine in self._listed if machine.id.startswith(unlisted)),
                )
                self.failure = str(error)
            if machines is None:
                self.unlisted = ("",)
                return None
            self._listed = tuple(map(self._without_paused, machines))
            self.unlisted = unlisted
            self._listed_in = situation
            self._listed_until = time.monotonic() + self._environment.list_every

        self.starting = ""
        return tuple(self._with_status(machine) for machine in self._listed)

    def _without_paused(self, machine: Machine) -> Machine:
        """The machine, returned if it was paused: it does no work, and what it holds costs
        money."""
        if machine.state is not MachineState.PAUSED:
            return machine

        try:
            self._provider.terminate([machine.id])
        except ProviderError as error:
            self.failure = str(error)
            return replace(machine, state=MachineState.STARTING, ended=None)

        ended = self._provider.now() if machine.ended is None else machine.ended
        reason = EndReason.FAILED if machine.failure else EndReason.EVICTED
        return replace(machine, state=MachineState.GONE, ended=ended, end_reason=reason)

    @property
    def running(self) -> frozenset[str]:
        """The machines that the provider itself last listed as running, or as about to."""
        up = (MachineState.STARTING, MachineState.RUNNING)
        return frozenset(machine.id for machine in self._listed if machine.state in up)

    def _with_status(self, machine: Machine) -> Machine:
        """The machine with its agent's status. A running machine without an agent is prepared."""
        provider = self._provider
        seen = provider.with_status(machine, self._unheard)
        if self._kept is not None and seen.state in (MachineState.RUNNING, MachineState.LEAVING):
            self._kept.fetch(provider, machine.id)

        if machine.state is MachineState.RUNNING and self._journal.state.stopping is None:
            supplies = self._workload.supplies()
            # Tunnels end with the launcher that opened them, so those of an earlier launcher are
            # opened again.
            if seen.state is MachineState.STARTING or supplies.reach:
                # A machine that cannot be reached now must not hold up the others.
                with suppress(ProviderError):
                    provider.prepare(machine, supplies)

        return seen

    def _unheard(self, reason: ProviderError) -> None:
        self.silence = self.starting = str(reason)
        if isinstance(reason, Unusable):
            self.unusable = str(reason)

    def console_end(self, machine: str) -> str:
        """The last lines of a machine's console, on one line; empty where there are none to see."""
        try:
            shown = _ESCAPES.sub("", self._provider.console(machine)).splitlines()
        except (ProviderError, NotImplementedError):
            return ""
        lines = ["".join(filter(str.isprintable, line)).strip()[:_CONSOLE_WIDTH] for line in shown]
        return self._environment.redacted(
            " | ".join([line for line in lines if line][-_CONSOLE_LINES:])
        )

    def remove_leftovers(self) -> tuple[tuple[Resource, ...] | None, bool]:
        """Removes all resources of the run besides machines.

        Returns those that could not be removed, None if they could not be listed; and whether that
        may pass. Once the run has ended, a resource that remains belongs to no run, so `gc` finds
        it.
        """
        left: tuple[Resource, ...] | None = None
        failure: ProviderError | None = None
        try:
            try:
                resources = self.retry(self._provider.resources, self._tags, refusals=_NOT_REPEATED)
                left = resources
            except PartlyListed as error:
                resources = error.listed
                failure = error.failure
            if resources is None:
                return None, True
            if resources:
                self._provider.remove(resources)
                left = () if left is not None else None
        except ProviderError as error:
            failure = error

        return left, failure is not None and action_for(failure) is ErrorAction.RETRY

    def release(self) -> str:
        """Returns all machines of the run, logs nothing, and says which machines the provider still
        shows running.

        Returning a machine twice is no error. A machine that cannot be returned now ends with its
        lease.
        """
        pause = self._retries.first_pause
        left = {held.id for held in self._journal.state.alive}
        why = ""

        for _ in range(_RELEASE_ROUNDS):
            with suppress(SpotctlError, OSError):
                left |= self._listed_running(left)
            try:
                if left:
                    self._provider.terminate(tuple(sorted(left)))
                # The provider's list decides: an accepted call alone returns nothing.
                left = self._listed_running(left)
                if not left:
                    return "all machines were returned"
            except (SpotctlError, OSError) as error:
                why = f" ({error})"
            time.sleep(pause)
            pause = min(2 * pause, self._retries.longest_pause)

        names = ", ".join(sorted(left)) or "machines that the provider did not list"
        return f"not returned: {names}{why}; each ends with its lease; spotctl gc returns them"

    def _listed_running(self, known: set[str]) -> set[str]:
        """The machines listed as running, and those of `known` that may be where a cloud does not
        answer.
        """
        over = (MachineState.GONE, MachineState.LEAVING)
        listed, failure = as_far_as_listed(lambda: self._provider.list(self._tags))
        unlisted = {
            name for name in known if failure is not None and name.startswith(failure.parts)
        }
        return unlisted | {machine.id for machine in listed if machine.state not in over}

    def _ordered(self, number: int, rent: Rent, *, reliable: bool) -> ev.RentIntended:
        """The order of a purchase, with its first lease and the prices of now."""
        offer = rent.offer
        until = self._journal.now() + first_lease(offer.market, self._environment.lease_times)
        held = self._environment.holdings(offer.market, spot=rent.bid is not None)
        return ev.RentIntended(
            number,
            offer.market,
            rent.machines,
            rent.bid,
            offer.on_demand,
            offer.nu,
            reliable,
            until,
            held.disk,
            held.address,
            self._environment.list_price(offer.market) if offer.market.reservation else 0,
        )

    def _finish(self, intent: Intended, *, repeated: bool = False) -> None:
        match intent:
            case ev.RentIntended():
                outcome = self._rent(intent, repeated=repeated)
            case ev.RenewIntended():
                outcome = self._renew(intent)
            case ev.ReturnIntended():
                returned = self.retry(self._return, intent)
                outcome = None if returned is None else ev.Returned(intent.intent)
            case ev.BidIntended(number, machine, wanted):
                (_, before), _ = self._journal.state.machines[machine].bids[-2:]
                try:
                    bid = self.retry(
                        self._provider.raise_bid, machine, wanted, refusals=(ProviderError,)
                    )
                except (ProviderError, BadRequest) as error:
                    self._journal.write(ev.BidChanged(number, machine, before, str(error)))
                    if action_for(error) is ErrorAction.STOP:
                        raise
                    return
                outcome = None if bid is None else ev.BidChanged(number, machine, bid)

        if outcome is not None:
            self._journal.write(outcome)

    def _rent(self, intent: ev.RentIntended, *, repeated: bool) -> Event | None:
        unanswered = repeated

        def call() -> tuple[Machine, ...]:
            nonlocal unanswered
            # A request to stop may have arrived since the order was written to the log, or since
            # the last attempt.
            self._journal.catch_up()
            if self._journal.state.stopping is not None:
                raise (Unanswered if unanswered else NotSent)("the run ends")

            state = self._journal.state
            ordered = self._journal.state.ordered[intent.intent]
            # Those known when it was ordered: a repeated order must begin in the same zone.
            silent = (
                held
                for held in state.machines.values()
                if held.silence and held.silent_at <= ordered
            )

            request = request_of(intent, self._environment, self._workload)
            try:
                return self._provider.create(
                    replace(request, silent=tuple(held.id for held in silent))
                )
            except Unanswered:
                unanswered = True
                raise

        try:
            machines = self.retry(call, refusals=(ProviderError,))
        except (ProviderError, BadRequest) as error:
            ordered = self._journal.state.ordered[intent.intent]
            if isinstance(error, NotYet) and self._journal.now() - ordered < MADE_WITHIN:
                self._ask_again[intent.intent] = self._journal.now() + NOT_YET_PAUSE
                if self._journal.state.reason != (reason := f"waiting: {error}"):
                    self._journal.write(ev.Decided((), reason))
                return None
            # An earlier attempt that got no answer may have succeeded all the same.
            why = ABANDONED if unanswered else type(error).__name__
            scope = getattr(error, "scope", Scope.MACHINE)
            reach = "" if scope in (Scope.MACHINE, Scope.MOMENT) else scope.value
            self._journal.write(
                ev.RentRefused(intent.intent, why, str(error), unknown_code(error), reach)
            )
            if action_for(error) is ErrorAction.STOP and not isinstance(error, NotSent):
                raise
            return None

        if machines is None:
            return None
        return ev.Rented(
            intent.intent,
            tuple(ev.Granted(machine.id, machine.started, machine.host) for machine in machines),
        )

    def _renew(self, intent: ev.RenewIntended) -> Event | None:
        def call() -> bool:
            has_answered = False
            for machine in intent.machines:
                try:
                    self._provider.link(machine).renew(intent.lease_until)
                    has_answered = True
                except NotFound:
                    # It is gone, which the next list shows.
                    has_answered = True
                except NotPermitted:
                    raise
                except ProviderError:
                    # It does not hold up the others: the next renewal asks it again.
                    continue

            if not has_answered:
                raise Unanswered(
                    "no machine answered; their leases end unless the next renewal reaches them"
                )
            return True

        return None if self.retry(call) is None else ev.Renewed(intent.intent)

    def _return(self, intent: ev.ReturnIntended) -> bool:
        if self._kept is not None:
            for machine in intent.machines:
                self._kept.fetch(self._provider, machine, now=True)
        self._provider.terminate(intent.machines)
        return True

    def retry(
        self,
        call: Callable[[*Arguments], T],
        *arguments: *Arguments,
        refusals: tuple[type[ProviderError], ...] = (NotPermitted,),
    ) -> T | None:
        """Repeats a call with growing pauses; returns the answer, None if there is none for now.
        Raises refusals.
        """
        retries = self._retries
        try:
            for attempt in stamina.retry_context(
                on=_may_succeed,
                attempts=retries.attempts,
                wait_initial=retries.first_pause,
                wait_max=retries.longest_pause,
                timeout=None,
            ):
                with attempt:
                    return call(*arguments)
        except ProviderError as error:
            if isinstance(error, refusals) and not _may_succeed(error):
                raise
            # The next turn tries again.
            self.failure = str(error)

        return None
