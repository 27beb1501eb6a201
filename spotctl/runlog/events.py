"""What happens in a run, as the event log keeps it: frozen values, and their JSON.

A call that changes a cloud is two events: what is intended, written before it, and what came of it. They share the
intent's number, from which the call's token is made. Times are microseconds UTC on the provider's clock, those named
`wall_us` on this computer's; prices are nano-dollars per hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import inf, isfinite
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from pricing_data.market import Market
from spotctl.runlog.errors import BrokenLog


def _market(given: object) -> Market:
    return given if isinstance(given, Market) else Market.parse(str(given))


def _number(given: object) -> object:
    # Version 0.1.0 wrote an infinite number as null.
    return inf if given is None else given


def _number_json(number: float) -> float | str:
    return number if isfinite(number) else str(number)


Number = Annotated[float, BeforeValidator(_number), PlainSerializer(_number_json, when_used="json")]
"""A float that survives JSON, which has no infinity: there it is the text `inf`."""

MarketText = Annotated[Market, PlainValidator(_market), PlainSerializer(str)]


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A run of a job begins; `spec` is the job as it was read, `folder` where its processes meet.

    `deadline` is the moment that the job's deadline meant at launch, in the provider's time (microseconds UTC). Logs
    of earlier versions have none: there, a time of day was read as UTC.
    """

    job: str
    provider: str
    spec: dict[str, Any]
    folder: str
    wall_us: int
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Another process goes on with the run."""

    wall_us: int


@dataclass(frozen=True, slots=True)
class Decided:
    """The strategy was asked and wanted something, and why."""

    wants: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What the run was expected to come to, in dollars and hours; `assumed` where nobody knows how much work it is."""

    usd: Number
    usd_low: Number
    usd_high: Number
    hours: Number
    on_demand_usd: Number
    assumed: bool


@dataclass(frozen=True, slots=True)
class RentIntended:
    """An order is about to be placed: so many machines of a market as one allocation.

    `disk` and `address` are what those of each machine cost beside it, in nano-dollars per hour.
    """

    intent: int
    market: MarketText
    machines: int
    bid: int | None
    on_demand: int
    nu: Number
    reliable: bool
    lease_until: int
    disk: int = 0
    address: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """One machine that came."""

    id: str
    started: int


@dataclass(frozen=True, slots=True)
class Rented:
    """Machines that came, which may be fewer than ordered."""

    intent: int
    machines: tuple[Granted, ...]


@dataclass(frozen=True, slots=True)
class RentRefused:
    """None came. `why` is the error's name."""

    intent: int
    why: str
    message: str


@dataclass(frozen=True, slots=True)
class RenewIntended:
    """Leases are about to be moved."""

    intent: int
    machines: tuple[str, ...]
    lease_until: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The leases were moved, those of machines that are gone excepted."""

    intent: int


@dataclass(frozen=True, slots=True)
class ReturnIntended:
    """Machines are about to be given back."""

    intent: int
    machines: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The provider has taken them back."""

    intent: int


@dataclass(frozen=True, slots=True)
class LeavePlanned:
    """An allocation works on to a moment and is then given back."""

    allocation: int
    at: int


@dataclass(frozen=True, slots=True)
class MachineRan:
    """A machine was first seen running."""

    id: str


@dataclass(frozen=True, slots=True)
class MachineWarned:
    """A machine will be taken; see `spotctl.run.observe`."""

    id: str
    deadline: int
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class MachineEnded:
    """A machine is gone, since when and why."""

    id: str
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A machine sent so many bytes to where that costs `price`, in nano-dollars per GiB."""

    id: str
    at: int
    bytes: int
    price: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Something about a machine, and when."""

    id: str
    at: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far the job is, and what has come to be known of its machines' time since it was told last.

    `ready` have loaded what the job needs and work from then on, `left` work no more; in `redone`, work was done again
    that was lost with a machine. All to the accuracy of a clock.
    """

    clock: int
    loss: float | None
    stage: int
    lost_updates: int = 0
    ready: tuple[Moment, ...] = ()
    left: tuple[Moment, ...] = ()
    redone: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkBegan:
    """A command begins, or goes on, on machines that are named in the order of their ranks; `port` is for the first."""

    attempt: int
    machines: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True)
class WorkStopped:
    """All nodes of an attempt are asked to end, to go on elsewhere, and why; or the program had ended `by_itself`."""

    attempt: int
    reason: str
    by_itself: bool = False


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint of a node lies where it outlives its machine: its number, what it cost, how often one is wanted."""

    attempt: int
    rank: int
    number: int
    bytes: int
    seconds: Number
    every_seconds: Number


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """A machine could not be prepared for the job; `tail` is what was printed last."""

    id: str
    code: int
    tail: str


FINISH = "finish the job"


@dataclass(frozen=True, slots=True)
class Refrained:
    """What was wanted would have passed the budget, of which so much is committed.

    Where it is to `FINISH`, the budget will not last, and `committed` is what the whole job is expected to cost.
    """

    what: str
    committed: int
    limit: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the run to end, as `outcome`, everything given back; `facts` are those that are known."""

    outcome: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Priced:
    """What a market cost during the run, and the name of its billing rule.

    With it the log alone tells what was paid, whatever becomes of the price store and of the defaults.
    """

    market: MarketText
    rule: str
    times: tuple[int, ...]
    prices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corrected:
    """What the ledger says of a machine was wrong by so much (nano-dollar-seconds); what it said stays."""

    id: str
    at: int
    amount: int
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Nothing of the run is left."""

    outcome: str
    message: str
    wall_us: int
    facts: dict[str, Any] = field(default_factory=dict)


Intended = RentIntended | RenewIntended | ReturnIntended
Event = (
    RunBegan
    | RunResumed
    | Planned
    | Decided
    | Intended
    | Rented
    | RentRefused
    | Renewed
    | Returned
    | LeavePlanned
    | MachineRan
    | MachineWarned
    | MachineEnded
    | Sent
    | Progressed
    | WorkBegan
    | WorkStopped
    | Checkpointed
    | SetupFailed
    | Refrained
    | StopRequested
    | Priced
    | Corrected
    | RunEnded
)

KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
"""The names under which events are kept: they are the format, and are never given to anything else."""


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    if kind not in KINDS:
        raise BrokenLog(f"the event log holds a {kind!r}, which this version does not know; use a newer spotctl")
    return TypeAdapter(KINDS[kind])


def to_json(event: Event) -> str:
    """The body of an event."""
    return _adapter(type(event).__name__).dump_json(event).decode()


def from_json(kind: str, body: str) -> Event:
    """The event of a kind and a body."""
    try:
        return _adapter(kind).validate_json(body)
    except ValidationError as error:
        raise BrokenLog(f"the event log holds a damaged {kind}: {error.errors()[0]['msg']}") from error
