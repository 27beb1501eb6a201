"""What every provider of machines does, and how it fails.

A provider keeps no state of its own that a crash could lose: what there is, it asks the cloud. Calls that change
something carry a token from which the cloud knows them again, or may simply be repeated, so that whoever does not know
whether a call came through repeats it. Times are microseconds UTC on the provider's clock, bids nano-dollars per hour.

What a machine runs is its `Payload`. It goes to the agent on the machine (`spotctl.agent.machine`), the same one
everywhere: the local provider starts that agent as a process, a cloud by cloud-init. A payload may come with the order,
or later by `assign`, when all nodes of a gang are known. It is written down (user-data, a file), so it holds no secret;
the secrets of an order are handed to the agent's process and written nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pricing_data.market import Market
from spotctl.errors import BadRequest, SpotctlError

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries


class ProviderError(SpotctlError):
    """Root of what a provider can refuse; the message names the market and the way out."""


class NoCapacity(ProviderError):
    """The market has no machine of this kind at this bid now. Another market may; this one, later."""


class QuotaReached(ProviderError):
    """The account may not have more of these. Only its owner can change that."""


class Throttled(ProviderError):
    """Too many calls; the same call will be answered after a pause."""


class NotPermitted(ProviderError):
    """Credentials are missing, have expired or do not allow the call."""


class NotFound(ProviderError):
    """There is no such thing (any more). `ids` are those that are missing; the call was carried out for the others."""

    def __init__(self, message: str, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class Unanswered(ProviderError):
    """The call may or may not have come through; repeat it with the same token, or look."""


class TokenTaken(ProviderError):
    """The token was used for another order. It is the caller's mistake, and nothing was rented."""


class MachineState(Enum):
    """The life of a machine."""

    STARTING = "starting"
    """Granted and paid for; its agent is not up yet."""
    RUNNING = "running"
    LEAVING = "leaving"
    """Warned, or being returned; it may still run."""
    GONE = "gone"
    """Nothing of it runs any more, and nothing more is paid for it."""


class EndReason(Enum):
    """Why a machine is gone; whoever pays wants to know."""

    RETURNED = "returned"
    EVICTED = "evicted"
    LEASE_ENDED = "lease ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Payload:
    """A command for a machine's agent to run, under a `name` that tells its result from that of an earlier one.

    It runs in `folder` (empty: in one of the machine's own) in a process group of its own. The agent adds to its
    environment `SPOTCTL_MACHINE`, `SPOTCTL_INDEX` (its number among the machines of the order, from 0) and
    `SPOTCTL_LEASE`, the folder of `spotctl.agent.lease` in which lease and notices are told. With `term_at_notice` an
    eviction's notice is also told by SIGTERM. When the machine is returned or its lease ends, the command gets SIGTERM
    and so many seconds of grace; when it is evicted, none.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    term_at_notice: bool = True
    grace_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """Machines of one market, bought together. `bid` None: on-demand, nobody takes them back.

    `token` is derived from the intent that was logged: the same order again returns the same machines. `tags` name the
    installation, the run and the allocation. Each machine ends itself at `lease_until` unless that is moved. `secrets`
    become environment variables of what the machine runs; they are the one part that may differ when an order is
    repeated, with the lease.
    """

    token: str
    market: Market
    count: int
    bid: int | None
    lease_until: int
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Payload | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.count < 1 or (self.bid is not None and self.bid <= 0):
            raise BadRequest(
                f"order of {self.count} machines of {self.market} with a bid of {self.bid}: both are above 0"
            )


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the provider sees it.

    It is paid from `started` to `ended`. `warned_until` is when it will be taken, once that is known. `work` is the
    name of the payload it was last given, `exit_code` what that ended with (negative: by this signal), None while it
    runs; a machine whose command has ended waits for another, or to be given back.
    """

    id: str
    market: Market
    bid: int | None
    state: MachineState
    started: int
    lease_until: int
    tags: Mapping[str, str]
    address: str = ""
    warned_until: int | None = None
    ended: int | None = None
    end_reason: EndReason | None = None
    work: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Anything that exists under a tag: a machine, a disk, an address, a key, a network rule, a stray process."""

    kind: str
    id: str
    tags: Mapping[str, str]
    detail: str = ""


class CloudProvider(Protocol):
    """Rents, looks, returns.

    Every call may raise Throttled, NotPermitted or Unanswered; what else, each says.
    """

    name: str

    @property
    def speed(self) -> float:
        """Seconds of the provider's clock that pass in a second: 1, except where a market is replayed faster."""
        ...

    def now(self) -> int:
        """The provider's clock: the market's time, which is also what billing goes by."""
        ...

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """What a market cost on [start, end], an event at both ends; not beyond now. NotFound: unknown there."""
        ...

    def create(self, order: MachineRequest) -> tuple[Machine, ...]:
        """Fewer machines than ordered may come. None at all: NoCapacity or QuotaReached. A token is never served twice.

        NotFound: no such market. TokenTaken: the token's order was another.
        """
        ...

    def assign(self, ids: Sequence[str], payload: Payload) -> None:
        """Has machines run this in place of what they run, if anything. The name they have already: nothing changes.

        NotFound names machines that are gone; the others run it.
        """
        ...

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """All machines with these tags, those that went lately included. New ones may show late on a cloud."""
        ...

    def renew(self, ids: Sequence[str], lease_until: int) -> None:
        """Moves the ends of leases; to a moment that has passed: to now.

        NotFound names machines that are gone; the others are renewed.
        """
        ...

    def terminate(self, ids: Sequence[str]) -> None:
        """Ends machines and their billing; those that are gone already, or never were, are no error.

        They may be LEAVING for a moment after it.
        """
        ...

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """Everything that exists under these tags, machines that are not gone included: what `gc` looks through."""
        ...

    def remove(self, resources: Sequence[Resource]) -> None:
        """Removes what `resources` found; what is gone already is no error."""
        ...


@runtime_checkable
class KeepsOutput(Protocol):
    """A provider that can show what its machines' commands print."""

    def output(self, machine: str, after: int = 0) -> bytes:
        """What the commands of the machine with this id have printed, from this byte on. NotFound: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Invocation:
    """What this computer has to run for a command to run on a machine. It is shown to nobody: it may hold secrets."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: str


@runtime_checkable
class TakesCommands(Protocol):
    """A provider whose machines a person can run commands on, beside what they run anyway."""

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """Runs the command on the machine with this id, where and as its work does. It ends with the machine at the
        latest. NotFound: the machine is gone, or never was.
        """
        ...
