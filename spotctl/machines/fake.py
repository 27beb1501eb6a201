"""A provider in memory, with a clock that is moved by hand and failures that are scripted.

    fake = FakeProvider(Replayed.of(histories), start)
    fake.script("create", Refusal(NoCapacity("none left")), LostAnswer())
    fake.create(order)      # raises NoCapacity
    fake.create(order)      # rents, and raises Unanswered
    fake.create(order)      # the machines of the call before
    fake.advance(3600)    # leases end, and the market takes what it takes

Evictions, warnings and prices are those of the replayed market; `evict`, `crash` and `finish` add what a test needs.
`calls` is what was asked for, in order, whatever came of it. Where faults depend on what is asked, or come by chance,
`weather` says of each call that no script is about what it meets:

    fake.weather = lambda call: Refusal(NotPermitted("expired")) if call.at > noon else None
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pricing_data.market import Market
from pricing_data.units import SECOND
from spotctl.agent.planned_ending import FAILED, Ending, PlannedEnding, ending, warning
from spotctl.machines.base import (
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    NotFound,
    Payload,
    ProviderError,
    QuotaReached,
    Resource,
    TokenTaken,
    Unanswered,
)
from spotctl.machines.replayed import Held, Replayed, Warnings
from spotctl.machines.tokens import same_request

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries


@dataclass(frozen=True, slots=True)
class Refusal:
    """The call fails with this error, and nothing has happened."""

    error: ProviderError


@dataclass(frozen=True, slots=True)
class LostRequest:
    """The call is not answered, and nothing has happened."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """The call is carried out, and not answered."""


@dataclass(frozen=True, slots=True)
class PartialGrant:
    """No more than so many machines are granted."""

    machines: int


@dataclass(frozen=True, slots=True)
class SlowDescribe:
    """What the call creates is not shown by so many of the next calls of `machines` and `resources`."""

    looks: int


Fault = Refusal | LostRequest | LostAnswer | PartialGrant | SlowDescribe


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked for, when on the provider's clock."""

    name: str
    asked: object
    at: int


@dataclass(slots=True)
class _Rented:
    """What the fake knows of a machine."""

    id: str
    order: MachineRequest
    fate: PlannedEnding
    lease_until: int
    hidden: int
    payload: Payload | None
    returned_at: int | None = None
    ended: Ending | None = None
    exit_code: int | None = None

    def end(self, now: int) -> Ending | None:
        """The end that has come; once it has, nothing changes it."""
        if self.ended is None:
            self.ended = ending(self.fate, self.lease_until, self.returned_at, now)
        return self.ended

    def seen(self, now: int) -> Machine:
        end, warned_until = self.end(now), warning(self.fate, now)
        alive = MachineState.RUNNING if warned_until is None else MachineState.LEAVING
        return Machine(
            id=self.id,
            market=self.order.market,
            bid=self.order.bid,
            state=alive if end is None else MachineState.GONE,
            started=self.fate.started,
            lease_until=self.lease_until,
            tags=self.order.tags,
            address=f"fake-{self.id}",
            warned_until=warned_until,
            ended=None if end is None else end.at,
            end_reason=None if end is None else EndReason(end.reason),
            work="" if self.payload is None else self.payload.name,
            exit_code=self.exit_code,
        )


@dataclass(slots=True)
class FakeProvider:
    """See the module. `most_machines` is the quota of machines at once."""

    market: Replayed
    time: int
    warnings: Warnings = field(default_factory=Warnings)
    most_machines: int = 1000
    name: str = "fake"
    calls: list[Call] = field(default_factory=list)
    weather: Callable[[Call], Fault | None] = lambda _: None
    _rented: dict[str, _Rented] = field(default_factory=dict)
    _orders: dict[str, MachineRequest] = field(default_factory=dict)
    _scripts: dict[str, deque[Fault]] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """Nobody waits for this clock."""
        return 1.0

    def now(self) -> int:
        """As far as it was moved."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.time += round(seconds * SECOND)

    def script(self, call: str, *faults: Fault) -> None:
        """The next calls of this name meet these faults, one each."""
        self._scripts.setdefault(call, deque()).extend(faults)

    def evict(self, machine: str, warning_seconds: float | None = None) -> None:
        """The market takes a machine: at once, or so long after a warning that is given now."""
        one, now = self._known(machine), self.time
        taken_at = now if warning_seconds is None else now + round(warning_seconds * SECOND)
        one.fate = PlannedEnding(one.fate.started, taken_at, None if warning_seconds is None else now)

    def crash(self, machine: str) -> None:
        """A machine fails."""
        one = self._known(machine)
        one.ended = one.end(self.time) or Ending(self.time, FAILED)

    def finish(self, machine: str, exit_code: int) -> None:
        """What a machine runs ends so."""
        self._known(machine).exit_code = exit_code

    @property
    def everything(self) -> tuple[Machine, ...]:
        """Every machine that was ever rented, as it is; looking is no call, and nothing is hidden from it."""
        return tuple(one.seen(self.time) for one in self._rented.values())

    def payload(self, machine: str) -> Payload | None:
        """What a machine was last given to run."""
        return self._known(machine).payload

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """See `CloudProvider`."""
        self._meet("prices", (market, start, end))
        return self.market.prices(market, start, end, self.time)

    def create(self, order: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`."""
        fault = self._meet("create", order)
        known = self._orders.get(order.token)
        if known is None:
            self._grant(order, fault)
        elif not same_request(known, order):
            raise TokenTaken(f"token {order.token} has rented {known.count} of {known.market}; use another")
        self._answer(fault)
        return tuple(one.seen(self.time) for one in self._rented.values() if one.order.token == order.token)

    def assign(self, ids: Sequence[str], payload: Payload) -> None:
        """See `CloudProvider`."""
        fault = self._meet("assign", (tuple(ids), payload))
        gone = self._gone(ids)
        for one in self._alive(ids):
            if one.payload is None or one.payload.name != payload.name:
                one.payload, one.exit_code = payload, None
        self._answer(fault, gone)

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`."""
        fault = self._meet("list", dict(tags))
        found = self._look(tags)
        self._answer(fault)
        return found

    def renew(self, ids: Sequence[str], lease_until: int) -> None:
        """See `CloudProvider`."""
        fault = self._meet("renew", (tuple(ids), lease_until))
        gone = self._gone(ids)
        for one in self._alive(ids):
            one.lease_until = min(max(lease_until, self.time), self.market.closes_at(one.order.market))
        self._answer(fault, gone)

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`."""
        fault = self._meet("terminate", tuple(ids))
        for one in self._alive(ids):
            one.returned_at = self.time
        self._answer(fault)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`."""
        fault = self._meet("resources", dict(tags))
        found = tuple(
            Resource("machine", one.id, one.tags, str(one.market))
            for one in self._look(tags)
            if one.state is not MachineState.GONE
        )
        self._answer(fault)
        return found

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`."""
        fault = self._meet("remove", tuple(resources))
        for one in self._alive([resource.id for resource in resources]):
            one.returned_at = self.time
        self._answer(fault)

    def _meet(self, name: str, asked: object) -> Fault | None:
        """Notes a call and finds what it meets; refuses it where it is not to be carried out."""
        call = Call(name, asked, self.time)
        self.calls.append(call)
        script = self._scripts.get(name)
        fault = script.popleft() if script else self.weather(call)
        if isinstance(fault, Refusal):
            raise fault.error
        if isinstance(fault, LostRequest):
            raise Unanswered("no answer; repeat the call with the same token, or look")
        return fault

    def _answer(self, fault: Fault | None, gone: Sequence[str] = ()) -> None:
        if isinstance(fault, LostAnswer):
            raise Unanswered("no answer; repeat the call with the same token, or look")
        if gone:
            raise NotFound(f"{', '.join(gone)}: gone", gone)

    def _grant(self, order: MachineRequest, fault: Fault | None) -> None:
        alive = self._alive(tuple(self._rented))
        room = self.most_machines - len(alive)
        if room < 1:
            raise QuotaReached(f"{len(alive)} machines run, and no more are allowed; raise the quota or give some back")
        wanted = min(order.count, room, fault.machines if isinstance(fault, PartialGrant) else order.count)
        held = [
            Held(one.fate.started, one.fate.taken_at)
            for one in alive
            if one.order.market == order.market and one.order.bid is not None
        ]
        fates = self.market.fates(replace(order, count=wanted), held, self.time, len(self._orders), self.warnings)
        self._orders[order.token] = order
        lease = min(order.lease_until, self.market.closes_at(order.market))
        hidden = fault.looks if isinstance(fault, SlowDescribe) else 0
        for fate in fates:
            machine = f"fake-{len(self._rented)}"
            self._rented[machine] = _Rented(machine, order, fate, lease, hidden, order.payload)

    def _look(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        shown = []
        for one in self._rented.values():
            if one.hidden:
                one.hidden -= 1
            elif tags.items() <= one.order.tags.items():
                shown.append(one.seen(self.time))
        return tuple(shown)

    def _alive(self, ids: Sequence[str]) -> tuple[_Rented, ...]:
        found = [self._rented[machine] for machine in ids if machine in self._rented]
        return tuple(one for one in found if one.end(self.time) is None)

    def _gone(self, ids: Sequence[str]) -> tuple[str, ...]:
        alive = {one.id for one in self._alive(ids)}
        return tuple(machine for machine in ids if machine not in alive)

    def _known(self, machine: str) -> _Rented:
        try:
            return self._rented[machine]
        except KeyError:
            raise NotFound(f"{machine}: no such machine", (machine,)) from None
