"""`CloudProvider`, what a cloud can do for spotctl, and `MachineLink`, what a machine's agent can do.

A provider keeps no state that a crash could lose: it asks the cloud what exists. Calls that change something carry a
token by which the cloud recognizes them, or are safe to repeat, so a caller that does not know whether a call succeeded
repeats it. Times are microseconds UTC on the provider's clock; bids are nano-dollars per hour.

A provider creates and ends machines. A machine's work is a matter of the launcher and the machine's agent
(`spotctl.agent.machine`), to which `link` connects. `docs/internals/architecture.md` shows the files of an adapter.

`errors` lists how calls fail, and `capabilities` what only some providers can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pricing_data.market import Market
from spotctl.agent.container.payload import Payload
from spotctl.agent.link.usage import GpuUse, Traffic
from spotctl.clouds.errors import NotFound
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries

__all__ = [
    "CloudProvider",
    "EndReason",
    "ExecResult",
    "Machine",
    "MachineLink",
    "MachineNotice",
    "MachineRequest",
    "MachineState",
    "MachineStatus",
    "Payload",
    "Resource",
    "now_of",
]


class MachineState(Enum):
    """Where a machine is in its life."""

    STARTING = "starting"
    """Granted and paid for, but the agent does not answer (yet)."""
    RUNNING = "running"
    LEAVING = "leaving"
    """Being terminated, or warned of an eviction; the payload may still run."""
    GONE = "gone"
    """Nothing runs any more, and nothing more is paid."""


class EndReason(Enum):
    """Why a machine is gone; the bill and the statistics of evictions depend on it."""

    RETURNED = "returned"
    EVICTED = "evicted"
    LEASE_ENDED = "lease ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A request for machines of one market, bought together. `bid` None: on demand, never evicted.

    `token` is derived from the logged intent: repeating the request with it returns the same machines. `tags` name the
    installation, the run and the intent. A machine ends itself at `lease_until` unless its lease is renewed. `payload`
    is what its agent runs from the start. `secrets` become environment variables of payloads and are never written.
    `close` ones are placed close together in their zone, for a fast network between them.
    `lease_until` and `secrets` may differ when a request is repeated. `image`, `identity` (what the machine may do),
    `disk_gib` and `network` are names in the cloud's own terms; unset, the provider chooses. Machines for `containers`
    install podman when they boot. Machines of a `reservation` (its id, as the cloud names it) are taken from it, or
    none is granted; `block` says that it is a Capacity Block.
    """

    token: str
    market: Market
    count: int
    bid: int | None
    lease_until: int
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Payload | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    image: str | None = None
    identity: str | None = None
    disk_gib: int | None = None
    network: str | None = None
    containers: bool = False
    close: bool = False
    reservation: str = ""
    block: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 or (self.bid is not None and self.bid <= 0):
            raise BadRequest(
                f"request for {self.count} machines of {self.market} with a bid of {self.bid}: both must be above 0"
            )


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its provider lists it, paid from `started` to `ended`. `address` is how its peers reach it.

    The last five are what its agent says (`spotctl.clouds.link.with_status`), and a provider leaves them unset:
    when it will be evicted, the name of the payload it was last given, that payload's exit code (negative: the signal
    that ended it; None: it has not ended), how busy its GPUs are, and what it has received and sent.
    """

    id: str
    market: Market
    bid: int | None
    state: MachineState
    started: int
    tags: Mapping[str, str]
    address: str = ""
    ended: int | None = None
    end_reason: EndReason | None = None
    warned_until: int | None = None
    work: str = ""
    exit_code: int | None = None
    gpus: GpuUse | None = None
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Anything that exists under a tag: a machine, a disk, an address, a key, a network rule, a stray process."""

    kind: str
    id: str
    tags: Mapping[str, str]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """An agent's report: the payload that it was last given, how that ended, its lease, and its number of notices.

    `exit_code` is negative for the signal that ended the payload, and None until it has ended. `cards` is None where
    nothing is known of GPUs, and `traffic` where the machine's interfaces are not its own; both from an agent
    of an earlier version.
    """

    work: str
    exit_code: int | None
    lease_until: int
    notices: int
    gpus: GpuUse | None = None
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True)
class MachineNotice:
    """An announcement that a machine will be taken (`kind` "evict") at `until`, or may be ("hint"), by `source`."""

    kind: str
    until: int
    source: str


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The exit code of a command on a machine (127: it could not be started), and its output."""

    exit_code: int
    out: bytes
    err: bytes


class MachineLink(Protocol):
    """One machine's agent. Times are microseconds of the provider's clock. All calls but `exec` may be repeated.

    Every call may raise NotFound (the machine is gone or ending), Unanswered (the call may or may not have been carried
    out) or NotPermitted (the secret is wrong).
    """

    def assign(self, payload: Payload) -> None:
        """Replaces the machine's payload. A payload with the name of the last one changes nothing."""
        ...

    def renew(self, lease_until: int) -> None:
        """Moves the end of the lease; a moment that has passed ends the machine now."""
        ...

    def status(self) -> MachineStatus:
        """The agent's report."""
        ...

    def notify(self, kind: str, until: int, source: str) -> None:
        """Delivers a notice to the machine and its payload; `kind` is "hint", "evict", "move" or "stop"."""
        ...

    def notices(self) -> tuple[MachineNotice, ...]:
        """The notices that the machine has received, in order."""
        ...

    def output(self, after: int = 0) -> bytes:
        """The output of the machine's payloads from this byte offset on, a part at a time; empty: no more for now."""
        ...

    def output_times(self, after: int = 0) -> bytes:
        """The times of that output: a file of `spotctl.agent.link.output` from this byte offset on, a part at a time.

        BadRequest: the agent is older than this operation.
        """
        ...

    def exec(self, command: Sequence[str]) -> ExecResult:
        """Runs a command in the folder and environment of the payload, and waits for the command's end.

        A command ends with the machine or with this connection at the latest. BadRequest: the agent refuses it.
        """
        ...


class CloudProvider(Protocol):
    """Creates, lists and ends machines. Every call may also raise Throttled, NotPermitted or Unanswered."""

    name: str

    @property
    def speed(self) -> float:
        """Seconds of the provider's clock per second: 1, except where a market is replayed faster."""
        ...

    def now(self) -> int:
        """The provider's clock, which is also the clock of its bills."""
        ...

    def offers(self) -> tuple[Market, ...]:
        """The markets in which machines can be requested now, at some price."""
        ...

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """A market's prices on [start, end], with an event at both ends.

        NotFound: its prices are not known there, or `end` is later than now.
        """
        ...

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """Creates at most as many machines as requested, and at least one. A token is never served twice.

        NoCapacity or QuotaReached: no machine is available. NotFound: there is no such market. TokenTaken: the token
        was used for a different request. BadRequest: the provider does not have a setting that the request asks for.
        """
        ...

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """All machines with these tags, including those that ended recently. A cloud may list new ones late.

        PartlyListed: a region or a cloud did not answer, and others did.
        """
        ...

    def terminate(self, ids: Sequence[str]) -> None:
        """Ends machines and their billing; ids that are gone or unknown are ignored.

        A machine may be LEAVING for a while, so that its payload can save its state.
        """
        ...

    def link(self, machine: str) -> MachineLink:
        """The link to the agent of the machine with this id. NotFound: the machine is gone, or never was."""
        ...

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """Everything that exists under these tags, including machines that are not gone. `spotctl gc` reads it.

        PartlyListed: a region or a cloud did not answer, and others did.
        """
        ...

    def remove(self, resources: Sequence[Resource]) -> None:
        """Removes resources that `resources` listed; those that are gone already are ignored."""
        ...


def now_of(provider: CloudProvider, otherwise: int) -> int:
    """The provider's time; `otherwise` for a local market that was never started."""
    try:
        return provider.now()
    except NotFound:
        return otherwise
