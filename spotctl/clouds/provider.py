"""`CloudProvider`, what a cloud can do for spotctl: creating, listing and ending machines, and what
belongs to them.

A provider keeps no state that a crash could lose: it asks the cloud what exists. Calls that change
something carry a token by which the cloud recognizes them, or are safe to repeat, so a caller that
does not know whether a call succeeded repeats it. Times are microseconds UTC on the provider's
clock; bids are nano-dollars per hour.

A provider creates and ends machines. A machine's work is a matter of the launcher and the machine's
agent (`spotctl.agent.machine`), to which `link` connects (`spotctl.clouds.link`).
`spotctl.clouds.errors` lists how calls fail. `docs/internals/write-a-cloud.md` shows how to write
one.
"""

# ruff: noqa: ARG002, B027 - a default needs no arguments, and may do nothing

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from pricing_data.market import Market
from spotctl.agent.container.payload import Payload
from spotctl.agent.link.usage import GpuUse, Traffic
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import AgentLink, Invocation, MachineSupplies, whole
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INTENT_TAG

if TYPE_CHECKING:
    from bidbrain.outbid.record import HostRecord
    from pricing_data.series import PriceSeries
    from spotctl.clouds.doctor import Requirement
    from spotctl.home.quotas import Quota


SAME_BID = 1e-3
"""Bids that differ by less than this share are the same: clouds may round them."""


class MachineState(Enum):
    """Where a machine is in its life."""

    STARTING = "starting"
    """Granted and paid for, but the agent does not answer (yet)."""
    RUNNING = "running"
    PAUSED = "paused"
    """Runs nothing, and only what it holds, such as its disk, is paid. A cloud that sells by bid
    may let it run again; a run returns it."""
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

    `token` is derived from the logged intent: repeating the request with it returns the same
    machines. `tags` name the installation, the run and the intent. A machine ends itself at
    `lease_until` unless its lease is renewed. `payload` is what its agent runs from the start.
    `secrets` become environment variables of payloads and are never written. `close` ones are
    placed close together in their zone, for a fast network between them. `lease_until`, `secrets`
    and `silent` may differ when a request is repeated. Zones of `silent` machines, which never
    booted, come last where the market leaves the zone open. `image`, `identity` (what the machine
    may do), `disk_gib` and `network` are names in the cloud's own terms; unset, the provider
    chooses. Machines for `containers` install podman when they boot. Machines of a `reservation`
    (its id, as the cloud names it) are taken from it, or none is granted; `block` says that it is a
    Capacity Block. `ports` of each machine are reached by the others of the run; only a cloud whose
    `JobKeys` have `ports` needs to know them.
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
    ports: tuple[int, ...] = ()
    silent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or (self.bid is not None and self.bid <= 0):
            problem = (
                f"request for {self.count} machines of {self.market} with a bid of {self.bid}: "
                "both must be above 0"
            )
            raise BadRequest(problem)


def same_request(known: MachineRequest, other: MachineRequest) -> bool:
    """Whether two requests differ only in what may change when a request is repeated."""
    may_differ: dict[str, Any] = {"lease_until": 0, "secrets": {}, "silent": (), "payload": None}
    first = replace(known, tags=dict(known.tags), **may_differ)
    second = replace(other, tags=dict(other.tags), **may_differ)
    payload = known.payload and known.payload.in_former_words()
    repeated = other.payload and other.payload.in_former_words()
    return first == second and payload == repeated


def fingerprint(request: MachineRequest) -> str:
    """A hash of what must not change when a request is repeated: 16 hexadecimal digits."""
    payload = None if request.payload is None else request.payload.in_former_words()
    fixed: list[object] = [
        request.token,
        str(request.market),
        request.count,
        request.bid,
        dict(request.tags),
        payload,
        (request.image, request.identity, request.disk_gib, request.network),
    ]
    # Requests that earlier versions made keep their fingerprint.
    if request.close:
        fixed.append("close")
    if request.reservation:
        fixed.append(request.reservation)
    fixed += request.ports
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def run_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that everything of a run shares: those of its machines, except the intent."""
    return {name: value for name, value in tags.items() if name != INTENT_TAG}


def check_settings(request: MachineRequest, provider: str) -> None:
    """Refuses settings of a cloud's machines on a provider whose machines have none."""
    for name in ("image", "identity", "disk_gib", "network"):
        if (value := getattr(request, name)) is not None:
            cure = "leave it out"
            problem = (
                f"{name} is {value!r}, but machines of the {provider} provider have no {name}; "
                f"{cure}"
            )
            raise BadRequest(problem)


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine, as far as its cloud has recorded it; `at` is None as long as it is in
    progress.
    """

    at: int | None
    reason: EndReason | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its provider lists it, paid from `started` to `ended`. A PAUSED one was outbid at
    `ended`, or has the `failure` that its cloud tells of, and is paid until it is returned.
    `address` is how its peers reach it, `host` the host that it is on, where each host runs the
    highest bid, and `traffic_prices` what that host bills for a GiB received and sent, in
    nano-dollars.

    The last six are what its agent says (`CloudProvider.with_status`), and a provider leaves them
    unset: when it will be evicted, the name of the payload it was last given, that payload's exit
    code (negative: the signal that ended it; None: it has not ended), how busy its GPUs are, and
    what it has received and sent; or, while the agent does not answer, what is seen of the boot.
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
    host: int | None = None
    failure: str = ""
    traffic_prices: tuple[int, int] = (0, 0)
    warned_until: int | None = None
    work: str = ""
    exit_code: int | None = None
    gpus: GpuUse | None = None
    traffic: Traffic | None = None
    boot: BootSign | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Anything that exists under a tag: a machine, a disk, an address, a key, a network rule, a
    stray process.
    """

    kind: str
    id: str
    tags: Mapping[str, str]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Nano-dollars per hour that a machine's disk and public address add to the machine's price."""

    disk: int = 0
    address: int = 0


class CloudProvider(ABC):
    """Creates, lists and ends machines. Every call may also raise Throttled, NotPermitted or
    Unanswered.

    What not every cloud can do has a default: nothing to do, nothing known, or a refusal.
    """

    name: str

    @property
    def speed(self) -> float:
        """Seconds of the provider's clock per second: 1, except where a market is replayed
        faster."""
        return 1.0

    @property
    def stood_seconds(self) -> float:
        """Seconds in which the clock has stood: 0, except on a market that waits for this
        computer."""
        return 0.0

    def attend(self, *, starting: str = "") -> None:
        """Tells the provider that a run uses it until `close`. `starting` names what is still
        starting, the run or the programs of its machines; an empty name in a later call says that
        it has started."""

    @abstractmethod
    def now(self) -> int:
        """The provider's clock, which is also the clock of its bills. A real cloud's is the
        `WallClock`.
        """

    @abstractmethod
    def offers(self) -> tuple[Market, ...]:
        """The markets in which machines can be requested now, at some price."""

    @abstractmethod
    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """A market's prices on [start, end], with an event at both ends.

        NotFound: its prices are not known there, or `end` is later than now.
        """

    @abstractmethod
    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """Creates at most as many machines as requested, and at least one. A token is never served
        twice.

        NoCapacity or QuotaReached: no machine is available. NotFound: there is no such market.
        TokenTaken: the token was used for a different request. BadRequest: the provider does not
        have a setting that the request asks for.
        """

    @abstractmethod
    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """All machines with these tags, including those that ended recently. A cloud may list new
        ones late.

        PartlyListed: a region or a cloud did not answer, and others did.
        """

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """Ends machines and their billing; ids that are gone or unknown are ignored.

        A machine may be LEAVING for a while, so that its payload can save its state.
        """

    @abstractmethod
    def link(self, machine: str) -> AgentLink:
        """The link to the agent of the machine with this id. NotFound: the machine is gone, or
        never was.
        """

    @abstractmethod
    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """Everything that exists under these tags, including machines that are not gone. `spotctl
        gc` reads it.

        PartlyListed: a region or a cloud did not answer, and others did.
        """

    @abstractmethod
    def remove(self, resources: Sequence[Resource]) -> None:
        """Removes resources that `resources` listed; those that are gone already are ignored."""

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        """Brings a machine that boots without the job's files and secrets to the point where its
        agent answers.

        Returns at once, and works in the background. The call may be repeated at any time, by any
        process that works on the run: completed steps are skipped. Without it, machines have what
        they need from the start.
        """

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """Runs a command on a machine, in the folder and environment of its payload, until the
        machine's end at most.

        NotFound: the machine is gone, or never was. BadRequest: a person can run no command there.
        """
        raise BadRequest(f"{machine}: machines of {self.name} cannot run commands with a terminal")

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...] | None:
        """Admits ssh to machines with these tags from these address ranges, and from no others any
        more.

        Returns the names of the changed rules; empty if the rules of these machines are not
        spotctl's, and None if the machines need no ssh.
        """
        return None

    def holdings(
        self, market: Market, *, spot: bool, disk_gib: int | None, image: str | None = None
    ) -> Holdings:
        """The prices of a machine's disk and address, where the cloud bills them separately.

        `disk_gib` and `image` are those of a `MachineRequest`: the disk is as large as it is
        ordered.
        """
        return Holdings()

    @property
    def look_at_hosts_every(self) -> int | None:
        """How often bids are compared with those that hosts ask for, in microseconds; None: the
        cloud has no hosts that run the highest bid, or bids are to stay."""
        return None

    def hosts(self, market: Market, *, disk_gib: int | None) -> HostRecord | None:
        """The hosts of a market that a bid could have now; None unless each of its hosts runs the
        highest bid.
        """
        return None

    def raise_bid(self, machine: str, bid: int) -> int:
        """Bids more for a machine, and returns its bid as the cloud then has it. The call may be
        repeated.

        NotFound: the machine is gone, or never was. BadRequest: bids for it cannot be changed.
        Unanswered: it may have been raised; `list` shows it.
        """
        raise BadRequest(f"{machine}: {self.name} has no bids that change")

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:
        """The quotas that machines of these types count against in a region: as spot machines, and
        on demand.

        Empty: the cloud states none.
        """
        return ()

    def output(self, machine: str, after: int = 0) -> bytes:
        """The output of a machine from this byte offset on. A provider may keep it beyond the
        machine's end.

        Unanswered: its agent does not answer. NotFound: the machine is gone, and nothing is kept of
        it.
        """
        return whole(self.link(machine).output, after)

    def output_times(self, machine: str, after: int = 0) -> bytes:
        """The times of that output: a file of `spotctl.agent.link.output`; empty if the agent is
        too old for them.
        """
        try:
            return whole(self.link(machine).output_times, after)
        except BadRequest:
            return b""

    def boot_sign(self, machine: str) -> BootSign | None:
        """How far the boot of a machine has come whose agent does not answer; None: this provider
        sees nothing of it.

        Without signs, the machine has a stated time until its agent answers
        (`spotctl.clouds.boot`).
        """
        return None

    def with_status(
        self, machine: Machine, on_silence: Callable[[ProviderError], None] | None = None
    ) -> Machine:
        """A listed machine with its agent's report. A machine whose agent does not answer counts as
        STARTING.

        `on_silence` gets the reason for the silence, which is no error: the caller has other
        machines to ask.
        """
        if machine.state not in (MachineState.RUNNING, MachineState.LEAVING):
            return machine

        try:
            link = self.link(machine.id)
            status = link.status()
            notices = link.notices() if status.notices else ()
        except ProviderError as error:
            if on_silence is not None:
                on_silence(error)
            return replace(machine, state=MachineState.STARTING, boot=self.boot_sign(machine.id))

        warned_until = min(
            (notice.until for notice in notices if notice.kind == "evict"), default=None
        )
        state = machine.state if warned_until is None else MachineState.LEAVING
        reported = replace(machine, work=status.work, exit_code=status.exit_code)

        return replace(
            reported,
            state=state,
            warned_until=warned_until,
            gpus=status.gpus,
            traffic=status.traffic,
        )

    def close(self) -> None:
        """Ends connections to the cloud and to machines. The machines and their agents go on."""

    @property
    def endpoint(self) -> str:
        """The host that calls go to, such as management.azure.com.

        `spotctl try --full` can test a provider that has one, and the three methods below.
        """
        return ""

    def usual_request(self) -> MachineRequest | None:
        """An order of a small spot machine where this computer rents by default; None: the cloud
        checks no orders.
        """
        return None

    def checks(self, request: MachineRequest) -> Sequence[Requirement]:
        """The conditions for serving a request; checking them changes nothing."""
        return ()

    def check_order(self, request: MachineRequest) -> str:
        """Has the cloud check an order as `create` would send it, and returns the image. Nothing is
        bought.

        Raises the errors of `create`.
        """
        raise NotImplementedError

    def console(self, machine: str) -> str:
        """The console output of a machine that the cloud shows by now."""
        raise NotImplementedError

    def simulate_eviction(self, machine: str) -> None:
        """Has the cloud's own simulator take a spot machine back, with the usual warning."""
        raise NotImplementedError


class Forwarded:
    """A call, or a value, that one provider has from another, under the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, provider: Any, owner: type) -> Any:  # noqa: ANN401 - what the other has
        return self if provider is None else getattr(provider.other, self._name)


class ForwardingProvider(CloudProvider):
    """Forwards a run's calls to one other provider.

    A subclass decides about calls that create, list and end machines or remove what is left. Trials
    ask a cloud itself.
    """

    speed: Any = Forwarded()
    now: Any = Forwarded()
    offers: Any = Forwarded()
    prices: Any = Forwarded()
    holdings: Any = Forwarded()
    quotas: Any = Forwarded()
    look_at_hosts_every: Any = Forwarded()
    hosts: Any = Forwarded()
    raise_bid: Any = Forwarded()
    admit_ssh: Any = Forwarded()
    link: Any = Forwarded()
    prepare: Any = Forwarded()
    boot_sign: Any = Forwarded()
    console: Any = Forwarded()
    invocation: Any = Forwarded()
    output: Any = Forwarded()
    output_times: Any = Forwarded()
    close: Any = Forwarded()

    def __init__(self, provider: CloudProvider) -> None:
        self.other, self.name = provider, provider.name
