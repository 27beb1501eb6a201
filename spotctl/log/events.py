"""The events of a run as the event log keeps them: frozen values. `event_json` reads and writes
them.

A request that changes a cloud is two events: the intent, written before the request, and its
outcome. They share the number of the intent, from which the token of the request is made. Times are
microseconds UTC on the provider's clock, those named `wall_us` on this computer's; prices are
nano-dollars per hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pricing_data.market import Market

if TYPE_CHECKING:
    JsonFloat = float
    MarketText = Market
else:

    class _InJson(type):
        """The type of fields that `event_json` writes and reads in its own way; `of` is that of
        their values.
        """

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, cls.of)

    class JsonFloat(metaclass=_InJson):
        """A float that survives JSON, which has no infinity: there it is the text `inf`."""

        of = float

    class MarketText(metaclass=_InJson):
        """A market, which is text in JSON."""

        of = Market


class LogEvent:
    """The root of all events: one `commits` if it can raise what `log.budget` counts as committed.

    The runner writes such an intent only within the budget, and no budget is set past any such
    event.
    """

    __slots__ = ()
    commits: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class RunBegan(LogEvent):
    """A run of a job begins; `spec` is the job as it was read, `folder` the rendezvous folder of
    its processes.

    `deadline` is the moment that the job's deadline meant at launch, in the provider's time
    (microseconds UTC). Logs of earlier versions have none: there, a time of day was read as UTC.
    `quotas` are those of the account, or the job's part of them (`aws/us-east-1/p3=64 vCPUs, ...`),
    without what other runs held: every plan of the run keeps to them, or to those of the last
    `QuotasShared`.
    """

    job: str
    provider: str
    spec: dict[str, Any]
    folder: str
    wall_us: int
    deadline: int | None = None
    quotas: str = ""


@dataclass(frozen=True, slots=True)
class QuotasShared(LogEvent):
    """The run may use other parts of the quotas from now on, as a round of the queue has divided
    them: every later plan keeps to them. While it `waits` for its next turn, it may hold no spot
    machine."""

    quotas: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class RunResumed(LogEvent):
    """Another process resumes the run."""

    wall_us: int


@dataclass(frozen=True, slots=True)
class Decided(LogEvent):
    """A decision of the strategy that asks for something: the instructions in words, and the
    reason.

    `departures` say which of the purchases the plan did not begin with, and why it did not, with
    the figures of then and now.
    """

    wants: tuple[str, ...]
    reason: str
    departures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OnDemandOffer:
    """The cheapest on-demand machines that a job allows: their price in nano-dollars per hour,
    speed and start-up.

    `spread` is the uncertainty of the logarithm of their speed, None if no speed was measured.
    `work` is the time that a command needs by its `hours` or its earlier runs, in microseconds
    times nu; None without any.
    """

    market: MarketText
    machines: int
    price: int
    nu: JsonFloat
    startup: int
    spread: float | None = None
    work: float | None = None


@dataclass(frozen=True, slots=True)
class Planned(LogEvent):
    """The expected cost in dollars and duration in hours; `assumed` if the amount of work was not
    known.

    `instead` are the machines with which savings are compared. `turns` are the machines, besides
    reliable ones, that a job of a queue is to have, each from a moment on.
    """

    usd: JsonFloat
    usd_low: JsonFloat
    usd_high: JsonFloat
    hours: JsonFloat
    on_demand_usd: JsonFloat
    assumed: bool
    instead: OnDemandOffer | None = None
    turns: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RentIntended(LogEvent):
    """An order is about to be placed: a number of machines of one market, as one allocation.

    `disk` and `address` are the additional prices of each machine's disk and address, in
    nano-dollars per hour. Of reserved machines, `on_demand` is what they cost the user, and
    `list_price` the on-demand price; 0 if unknown.
    """

    commits: ClassVar[bool] = True
    intent: int
    market: MarketText
    machines: int
    bid: int | None
    on_demand: int
    nu: JsonFloat
    reliable: bool
    lease_until: int
    disk: int = 0
    address: int = 0
    list_price: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """One rented machine, and the host that it is on, where each host runs the highest bid."""

    id: str
    started: int
    host: int | None = None


@dataclass(frozen=True, slots=True)
class Rented(LogEvent):
    """The machines that an order brought, which may be fewer than ordered."""

    commits: ClassVar[bool] = True
    intent: int
    machines: tuple[Granted, ...]


@dataclass(frozen=True, slots=True)
class RentRefused(LogEvent):
    """An order brought no machines; `why` is the name of the error, and `unknown` the code of one
    in no table. `scope` is how far the refusal reaches, if further than the order's market."""

    intent: int
    why: str
    message: str
    unknown: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class OrderSettled(LogEvent):
    """The result of an order without an answer is known: a later list of the provider has no more
    of its machines.
    """

    intent: int


@dataclass(frozen=True, slots=True)
class RenewIntended(LogEvent):
    """Leases are about to be extended."""

    commits: ClassVar[bool] = True
    intent: int
    machines: tuple[str, ...]
    lease_until: int


@dataclass(frozen=True, slots=True)
class Renewed(LogEvent):
    """The leases were extended, except those of machines that are gone."""

    intent: int


@dataclass(frozen=True, slots=True)
class ReturnIntended(LogEvent):
    """Machines are about to be returned."""

    intent: int
    machines: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Returned(LogEvent):
    """The provider has accepted the return."""

    intent: int


@dataclass(frozen=True, slots=True)
class ReturnScheduled(LogEvent):
    """An allocation works on until a moment and is then returned; with `machines`, only these
    machines.
    """

    allocation: int
    at: int
    machines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BidIntended(LogEvent):
    """The bid of a machine is about to be raised; `why` has the figures. From here on it counts,
    unless its outcome says otherwise."""

    commits: ClassVar[bool] = True
    intent: int
    id: str
    bid: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class BidChanged(LogEvent):
    """The bid of a machine, as its cloud has it: the outcome of an intent, or (`intent` 0) found in
    a list.

    `refused` is why the cloud has not raised it.
    """

    commits: ClassVar[bool] = True
    intent: int
    id: str
    bid: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class HostsListed(LogEvent):
    """A look at a market in which each host runs the highest bid: how many hosts a bid could have,
    and the lowest of their minimum bids; 0 without any."""

    market: MarketText
    hosts: int
    least: int


@dataclass(frozen=True, slots=True)
class BootAdvanced(LogEvent):
    """A booting machine shows a sign of life: it has come to a phase (`stage`), or moves on
    within it. `sign` differs from one sign of a phase to the next."""

    id: str
    stage: str
    sign: str = ""


@dataclass(frozen=True, slots=True)
class BootSilent(LogEvent):
    """A booting machine counts as silent, and is returned; `console` is the end of what its console
    shows.
    """

    id: str
    why: str
    console: str = ""


@dataclass(frozen=True, slots=True)
class MachineRan(LogEvent):
    """A machine was first seen running."""

    id: str


@dataclass(frozen=True, slots=True)
class MachineWarned(LogEvent):
    """A machine will be evicted at the deadline."""

    id: str
    deadline: int
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class CardsUsed(LogEvent):
    """How busy a machine's GPUs are from now on, and how full their memory is, in percent; None:
    unknown.
    """

    id: str
    busy: int | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class TrafficCounted(LogEvent):
    """Bytes that a machine has received and sent since it started."""

    id: str
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class MachineEnded(LogEvent):
    """A machine is gone: since when, and why; `failure` is its cloud's word for what failed."""

    id: str
    at: int
    reason: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class MachineListedAgain(LogEvent):
    """A machine that was missing in the provider's list, and counted as gone, runs all the same."""

    commits: ClassVar[bool] = True
    id: str


@dataclass(frozen=True, slots=True)
class Sent(LogEvent):
    """Outgoing traffic of a machine; `price` is in nano-dollars per GiB. `target` is where it went,
    `gcp/us-central1`; logs of older versions do not have it."""

    commits: ClassVar[bool] = True
    id: str
    at: int
    bytes: int
    price: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A machine and a moment."""

    id: str
    at: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period of time."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Progressed(LogEvent):
    """How far the job is, and what became known about its machines' time since the last such event.

    `ready` machines have loaded the job and work from then on, `left` machines work no more. In
    `redone` periods, work that was lost with a machine was done again. Accurate to one clock. The
    first event of a process has the clock from which its training went on, `resumed_clock`.
    """

    clock: int
    loss: float | None
    stage: int
    ready: tuple[Moment, ...] = ()
    left: tuple[Moment, ...] = ()
    redone: tuple[Stretch, ...] = ()
    resumed_clock: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptBegan(LogEvent):
    """A command starts or resumes on machines, in the order of their ranks; `port` is for the first
    one.

    `share` is the part of its planned speed that it has on them: below 1 if it runs on fewer nodes.
    """

    attempt: int
    machines: tuple[str, ...]
    port: int
    share: JsonFloat = 1.0


@dataclass(frozen=True, slots=True)
class AttemptStopped(LogEvent):
    """All nodes of an attempt are asked to stop, or the program had exited to be moved
    (`by_program`).

    `code` is the status with which the program failed, if it is tried again.
    """

    attempt: int
    reason: str
    by_program: bool = False
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpointed(LogEvent):
    """A checkpoint of a node is stored: its number, the seconds it took, and the interval that is
    wanted.
    """

    attempt: int
    rank: int
    number: int
    bytes: int
    seconds: JsonFloat
    every_seconds: JsonFloat


@dataclass(frozen=True, slots=True)
class SetupFailed(LogEvent):
    """The setup failed on a machine; `tail` is the end of its output."""

    id: str
    code: int
    tail: str


FINISH = "finish the job"


@dataclass(frozen=True, slots=True)
class BudgetExceeded(LogEvent):
    """An action that the budget does not allow: `committed` is spent or reserved already.

    The action `FINISH` means that the budget will not last; `committed` is then the expected cost
    of the whole job.
    """

    action: str
    committed: int
    limit: int


@dataclass(frozen=True, slots=True)
class BudgetSet(LogEvent):
    """The user has set the most that the run may cost in all, in nano-dollar-seconds: from here on,
    no order, renewal or end follows from an earlier budget."""

    limit: int


@dataclass(frozen=True, slots=True)
class LoginAwaited(LogEvent):
    """A cloud refuses the login, for the reason `message`: decisions wait for it `until` then, at
    most.
    """

    message: str
    until: int


@dataclass(frozen=True, slots=True)
class LoginWorks(LogEvent):
    """The cloud accepts the login again."""


@dataclass(frozen=True, slots=True)
class ClockStood(LogEvent):
    """How many seconds the local market's clock had stood by now, since the market was started: so
    long the computer kept its machines from their work. With the times of the rows, this says when
    anything happened on the computer's own clock."""

    seconds: JsonFloat


@dataclass(frozen=True, slots=True)
class StopRequested(LogEvent):
    """The run is to end with this `outcome` and all machines returned; `facts` are the known
    figures.
    """

    outcome: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Priced(LogEvent):
    """The prices of a market during the run, and the name of its billing rule.

    With these events, the log suffices to compute what was paid, on any computer, even if the price
    store or the default rules change. A later event replaces the prices from its first time on;
    those at the end have all.
    """

    market: MarketText
    rule: str
    times: tuple[int, ...]
    prices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corrected(LogEvent):
    """A correction of the ledger for a machine, in nano-dollar-seconds; the wrong rows stay."""

    id: str
    at: int
    amount: int
    why: str


@dataclass(frozen=True, slots=True)
class RowsLost(LogEvent):
    """A repair of the log dropped this many rows of the run. In a row without a run: rows that may
    be of any run.

    `first` and `last` are their numbers in the damaged log; `since` and `until` are the times of
    the rows around them, on the provider's clock, or without a run on this computer's. `kinds` are
    the kinds that could still be read.
    """

    rows: int
    first: int
    last: int
    since: int
    until: int
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnded(LogEvent):
    """All machines of the run are returned or gone."""

    outcome: str
    message: str
    wall_us: int
    facts: dict[str, Any] = field(default_factory=dict)


Intended = RentIntended | RenewIntended | ReturnIntended | BidIntended
Alarm = BudgetExceeded | LoginAwaited
"""Things that the user may want to change while a run goes on."""
Event = (
    RunBegan
    | QuotasShared
    | RunResumed
    | Planned
    | Decided
    | Intended
    | Rented
    | RentRefused
    | OrderSettled
    | Renewed
    | Returned
    | ReturnScheduled
    | BidChanged
    | HostsListed
    | BootAdvanced
    | BootSilent
    | MachineRan
    | MachineWarned
    | CardsUsed
    | TrafficCounted
    | MachineEnded
    | MachineListedAgain
    | Sent
    | Progressed
    | AttemptBegan
    | AttemptStopped
    | Checkpointed
    | SetupFailed
    | BudgetExceeded
    | BudgetSet
    | LoginAwaited
    | LoginWorks
    | ClockStood
    | StopRequested
    | Priced
    | Corrected
    | RowsLost
    | RunEnded
)

KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
"""The names under which events are stored: they are the format, and are never reused for another
event."""
