"""A provider in memory, with a clock that is moved by hand and failures that are scripted.

    fake = FakeProvider(Replayed.of(histories), start)
    fake.script("create", Refusal(NoCapacity("none left")), LostAnswer())
    fake.create(request)  # raises NoCapacity
    fake.create(request)  # creates machines, and raises Unanswered
    fake.create(request)  # returns the machines of the call before
    fake.advance(3600)    # leases end, and the market evicts

Evictions, warnings and prices are those of the replayed market; `evict`, `crash`, `finish` and
`print` add what a test needs. `calls` records every call of the provider and of its links, whatever
came of it. Where faults depend on the call or come at random, `weather` decides about each call
that no script covers:

    fake.weather = lambda call: Refusal(NotPermitted("expired")) if call.at > noon else None
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bidbrain.replay.market import Warnings
from pricing_data.market import Market
from pricing_data.units import SECOND
from spotctl.agent.container.payload import Payload
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.errors import NotFound, QuotaReached, TokenTaken, Unanswered
from spotctl.clouds.link import AgentLink, ExecResult, MachineStatus
from spotctl.clouds.local.machine_file import FAILED, PlannedEnd, ReplayedEnd, end_of, warning
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import (
    CloudProvider,
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    Resource,
    check_settings,
    same_request,
)
from spotctl.home.errors import SpotctlError

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries


@dataclass(frozen=True, slots=True)
class Refusal:
    """The call fails with this error, and has no effect."""

    error: SpotctlError


@dataclass(frozen=True, slots=True)
class LostRequest:
    """The call gets no answer, and has no effect."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """The call is carried out, but gets no answer."""


@dataclass(frozen=True, slots=True)
class PartialGrant:
    """At most this many machines are granted."""

    machines: int


@dataclass(frozen=True, slots=True)
class SlowDescribe:
    """The next `looks` calls of `list` and `resources` do not show what the call creates."""

    looks: int


Fault = Refusal | LostRequest | LostAnswer | PartialGrant | SlowDescribe


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the provider or a link: its name, its arguments, and when it was made on the
    provider's clock.
    """

    name: str
    asked: object
    at: int


@dataclass(slots=True)
class _FakeMachine:
    """A machine of the fake, with its payload and its end."""

    id: str
    request: MachineRequest
    plan: PlannedEnd
    lease_until: int
    hidden: int
    payload: Payload | None
    terminated_at: int | None = None
    ended: ReplayedEnd | None = None
    exit_code: int | None = None
    printed: bytes = b""
    printed_at: bytes = b""
    heard: tuple[MachineNotice, ...] = ()

    def end(self, now: int) -> ReplayedEnd | None:
        """The end that has come; once it has, nothing changes it."""
        if self.ended is None:
            self.ended = end_of(self.plan, self.lease_until, self.terminated_at, now)
        return self.ended

    def listed(self, now: int) -> Machine:
        """The machine as a provider lists it."""
        end = self.end(now)
        return Machine(
            id=self.id,
            market=self.request.market,
            bid=self.request.bid,
            state=MachineState.RUNNING if end is None else MachineState.GONE,
            started=self.plan.started,
            tags=self.request.tags,
            address=f"fake-{self.id}",
            ended=None if end is None else end.at,
            end_reason=None if end is None else EndReason(end.reason),
        )

    def notices(self, now: int) -> tuple[MachineNotice, ...]:
        """The notices that the machine's agent has received, from the market and over the link."""
        until = warning(self.plan, now)
        return self.heard if until is None else (MachineNotice("evict", until, "fake"), *self.heard)

    def status(self, now: int) -> MachineStatus:
        work = "" if self.payload is None else self.payload.name
        return MachineStatus(work, self.exit_code, self.lease_until, len(self.notices(now)))


class FakeLink(AgentLink):
    """A link to a machine of the fake; `AgentLink` documents its calls."""

    def __init__(self, fake: FakeProvider, machine: str) -> None:
        self._fake, self._machine = fake, machine

    def assign(self, payload: Payload) -> None:
        fault, machine = self._begin("assign", ((self._machine,), payload))
        if machine.payload is None or machine.payload.name != payload.name:
            machine.payload, machine.exit_code = payload, None
        self._fake.answer(fault)

    def renew(self, lease_until: int) -> None:
        fault, machine = self._begin("renew", ((self._machine,), lease_until))
        closes_at = self._fake.market.closes_at(machine.request.market)
        machine.lease_until = min(max(lease_until, self._fake.time), closes_at)
        self._fake.answer(fault)

    def status(self) -> MachineStatus:
        fault, machine = self._begin("status", self._machine)
        self._fake.answer(fault)
        return machine.status(self._fake.time)

    def notify(self, kind: str, until: int, source: str) -> None:
        fault, machine = self._begin("notify", (self._machine, kind))
        notice = MachineNotice(kind, until, source)
        if notice not in machine.heard:
            machine.heard = (*machine.heard, notice)
        self._fake.answer(fault)

    def notices(self) -> tuple[MachineNotice, ...]:
        fault, machine = self._begin("notices", self._machine)
        self._fake.answer(fault)
        return machine.notices(self._fake.time)

    def output(self, after: int = 0) -> bytes:
        """See `AgentLink`; what `FakeProvider.print` has added."""
        fault, machine = self._begin("output", (self._machine, after))
        self._fake.answer(fault)
        return machine.printed[after:]

    def output_times(self, after: int = 0) -> bytes:
        fault, machine = self._begin("output_times", (self._machine, after))
        self._fake.answer(fault)
        return machine.printed_at[after:]

    def exec(self, command: Sequence[str]) -> ExecResult:
        """See `AgentLink`. Nothing runs here: every command succeeds and prints nothing."""
        fault, _ = self._begin("exec", (self._machine, tuple(command)))
        self._fake.answer(fault)
        return ExecResult(0, b"", b"")

    def _begin(self, name: str, asked: object) -> tuple[Fault | None, _FakeMachine]:
        return self._fake.meet(name, asked), self._fake.running(self._machine)


@dataclass(slots=True)
class FakeProvider(CloudProvider):
    """See the module. `most_machines` is the quota of machines at once."""

    market: Replayed
    time: int
    warnings: Warnings = field(default_factory=Warnings)
    most_machines: int = 1000
    name: str = "fake"
    calls: list[Call] = field(default_factory=list)
    weather: Callable[[Call], Fault | None] = lambda _: None
    _machines: dict[str, _FakeMachine] = field(default_factory=dict)
    _requests: dict[str, MachineRequest] = field(default_factory=dict)
    _scripts: dict[str, deque[Fault]] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """Nothing waits for this clock."""
        return 1.0

    def now(self) -> int:
        """The time to which `advance` has moved the clock."""
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += round(seconds * SECOND)

    def script(self, call: str, *faults: Fault) -> None:
        """Gives the next calls of this name these faults, one each."""
        self._scripts.setdefault(call, deque()).extend(faults)

    def evict(self, machine: str, warning_seconds: float | None = None) -> None:
        """Has the market take a machine: at once, or this long after a warning that is given
        now."""
        known, now = self._known(machine), self.time
        taken_at = now if warning_seconds is None else now + round(warning_seconds * SECOND)
        known.plan = PlannedEnd(
            known.plan.started, taken_at, None if warning_seconds is None else now
        )

    def crash(self, machine: str) -> None:
        """Has a machine fail."""
        known = self._known(machine)
        known.ended = known.end(self.time) or ReplayedEnd(self.time, FAILED)

    def finish(self, machine: str, exit_code: int) -> None:
        """Ends a machine's payload with this exit code."""
        self._known(machine).exit_code = exit_code

    def print(self, machine: str, output: bytes) -> None:
        """Has a machine's payload print something."""
        known = self._known(machine)
        known.printed += output
        known.printed_at += f"{len(known.printed)} {self.time}\n".encode()

    @property
    def everything(self) -> tuple[Machine, ...]:
        """Every machine that was ever created, with its agent's report. This is no call, and shows
        hidden machines.
        """
        return tuple(self._complete(machine) for machine in self._machines.values())

    def lease_until(self, machine: str) -> int:
        return self._known(machine).lease_until

    def payload(self, machine: str) -> Payload | None:
        """The payload that a machine was last given."""
        return self._known(machine).payload

    def offers(self) -> tuple[Market, ...]:
        fault = self.meet("offers", ())
        self.answer(fault)
        return self.market.open_at(self.time)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        self.meet("prices", (market, start, end))
        return self.market.prices(market, start, end, self.time)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        fault = self.meet("create", request)
        check_settings(request, self.name)
        known = self._requests.get(request.token)
        if known is None:
            self._grant(request, fault)
        elif not same_request(known, request):
            raise TokenTaken(
                f"token {request.token} was used for {known.count} machines of {known.market}"
            )
        self.answer(fault)
        created = (
            machine for machine in self._machines.values() if machine.request.token == request.token
        )
        return tuple(machine.listed(self.time) for machine in created)

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        fault = self.meet("list", dict(tags))
        shown = self._look(tags)
        self.answer(fault)
        return shown

    def terminate(self, ids: Sequence[str]) -> None:
        fault = self.meet("terminate", tuple(ids))
        for machine in self._alive(ids):
            machine.terminated_at = self.time
        self.answer(fault)

    def link(self, machine: str) -> FakeLink:
        self.running(machine)
        return FakeLink(self, machine)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        fault = self.meet("resources", dict(tags))
        orphaned = tuple(
            Resource("machine", machine.id, machine.tags, str(machine.market))
            for machine in self._look(tags)
            if machine.state is not MachineState.GONE
        )
        self.answer(fault)
        return orphaned

    def remove(self, resources: Sequence[Resource]) -> None:
        fault = self.meet("remove", tuple(resources))
        for machine in self._alive([resource.id for resource in resources]):
            machine.terminated_at = self.time
        self.answer(fault)

    def meet(self, name: str, asked: object) -> Fault | None:
        """Records a call and returns its fault; raises the fault's error if the call is to have no
        effect.
        """
        call = Call(name, asked, self.time)
        self.calls.append(call)
        script = self._scripts.get(name)
        fault = script.popleft() if script else self.weather(call)
        if isinstance(fault, Refusal):
            raise fault.error
        if isinstance(fault, LostRequest):
            raise Unanswered("no answer; repeat the call with the same token, or list what exists")
        return fault

    def answer(self, fault: Fault | None) -> None:
        """Loses the answer of a call if its fault says so."""
        if isinstance(fault, LostAnswer):
            raise Unanswered("no answer; repeat the call with the same token, or list what exists")

    def running(self, machine: str) -> _FakeMachine:
        """A machine that has not ended. NotFound: the machine has ended, or never was."""
        alive = self._alive([machine])
        if not alive:
            raise NotFound(f"{machine}: gone", (machine,))
        return alive[0]

    def _complete(self, machine: _FakeMachine) -> Machine:
        status, listed = machine.status(self.time), machine.listed(self.time)
        until = min(
            (notice.until for notice in machine.notices(self.time) if notice.kind == "evict"),
            default=None,
        )
        leaving = until is not None and listed.state is MachineState.RUNNING
        state = MachineState.LEAVING if leaving else listed.state
        return replace(
            listed, state=state, warned_until=until, work=status.work, exit_code=status.exit_code
        )

    def _grant(self, request: MachineRequest, fault: Fault | None) -> None:
        alive = self._alive(tuple(self._machines))
        room = self.most_machines - len(alive)
        if room < 1:
            raise QuotaReached(
                f"{len(alive)} machines run, and no more are allowed; raise the quota or end some"
            )
        most = min(
            request.count,
            room,
            fault.machines if isinstance(fault, PartialGrant) else request.count,
        )
        granted = [
            machine.plan.taken_at
            for machine in alive
            if machine.request.market == request.market and machine.request.bid is not None
        ]
        number = len(self._requests)
        plans = self.market.planned_ends(
            replace(request, count=most), granted, self.time, number, self.warnings
        )
        self._requests[request.token] = request
        lease = min(request.lease_until, self.market.closes_at(request.market))
        hidden = fault.looks if isinstance(fault, SlowDescribe) else 0
        for plan in plans:
            id_ = f"fake-{len(self._machines)}"
            self._machines[id_] = _FakeMachine(id_, request, plan, lease, hidden, request.payload)

    def _look(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        shown = []
        for machine in self._machines.values():
            if machine.hidden:
                machine.hidden -= 1
            elif tags.items() <= machine.request.tags.items():
                shown.append(machine.listed(self.time))
        return tuple(shown)

    def _alive(self, ids: Sequence[str]) -> tuple[_FakeMachine, ...]:
        known = (self._machines[id_] for id_ in ids if id_ in self._machines)
        return tuple(machine for machine in known if machine.end(self.time) is None)

    def _known(self, machine: str) -> _FakeMachine:
        try:
            return self._machines[machine]
        except KeyError:
            raise NotFound(f"{machine}: no such machine", (machine,)) from None
