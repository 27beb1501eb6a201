"""The market behind the simulated Vast.ai: hosts, the contracts on them, who runs, and what each
contract has cost.

A host is offered as a whole. Its owner sets prices for each GPU, an offer states them for the
machine. A contract with a bid runs while nobody outbids it and nobody rents the machine on demand;
else it is stopped, keeps its disk, and runs again when it has priority. What runs costs its bid, or
the price on demand, from the moment its container runs. The disk costs its price from the order to
the destruction, in every state.

Sources: docs.vast.ai, pages "Instance Types" (priority, pauses, resumption), "Billing" (what is
charged when), "Rental Types" (bids are direct: you pay what you bid), "Create Instance"; dstack's
issue 4036 (a bid that is too low makes a stopped contract, and an error that names it). All read on
2026-11-28.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

HOURS_A_MONTH = 720
"""Storage of $0.15 per GB and month is $0.0021 an hour for 10.08 GB, in the example of "Show
Instances"."""

STEP = 0.001
"""The smallest bid, and how much higher than another one a bid must be to win."""


@dataclass(eq=False)
class Host:
    """A machine on offer, with prices in dollars for an hour of a GPU, a GB of storage in a month,
    and a GB of traffic.

    `rival` is the bid of another renter for the machine, and `taken` says that another rents it on
    demand. Machines of one `address` are behind one router. Of a slice, `share` is its part of the
    host's processors and memory. A host with a driver that is too old, say, `refuses` all
    containers with its Docker's message.
    """

    machine_id: int
    gpu: str = "RTX 4090"
    gpus: int = 1
    country: str = "US"
    verified: bool = True
    gpu_price: float = 0.40
    gpu_floor: float = 0.15
    storage: float = 0.15
    disk: float = 400.0
    reliability: float = 0.995
    cpu_cores: int = 16
    ram_mb: int = 64_000
    gpu_ram_mb: int = 24_564
    rival: float | None = None
    taken: bool = False
    online: bool = True
    lasts_seconds: float = 30 * 86_400.0
    ask: int = 0
    address: str = ""
    static_ip: bool = True
    traffic: float = 0.0
    direct_ports: int = 64
    cuda: float = 12.8
    capability: int = 890
    mbit_down: float = 900.0
    share: float = 1.0
    external: bool = False
    refuses: str = ""

    def __post_init__(self) -> None:
        self.address = self.address or f"127.0.0.{self.machine_id % 250 + 1}"

    @property
    def price(self) -> float:
        """The price of the machine on demand."""
        return self.gpu_price * self.gpus

    @property
    def floor(self) -> float:
        """The lowest bid for the machine that its owner takes."""
        return self.gpu_floor * self.gpus


@dataclass(eq=False)
class Contract:
    """An order: an instance that exists until it is destroyed. `price` None: on demand.

    `wanted` says that its owner wants it to run, `running_since` since when its container does.
    """

    id: int
    host: Host
    price: float | None
    disk: float
    body: dict[str, object]
    made: float
    label: str | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    wanted: bool = True
    granted: float | None = None
    ever_granted: bool = False
    destroyed: float | None = None
    charged_until: float = 0.0
    gpu_usd: float = 0.0
    shown: dict[str, object] = field(default_factory=dict)
    """Fields that a list shows in place of those that the market knows, such as the words for a
    container that has ended."""
    ports: dict[int, int] = field(default_factory=dict)
    """The router's port for each port of the container that others reach."""

    @property
    def wanted_ports(self) -> list[int]:
        """That of sshd, and those that Docker's options in the order ask for."""
        variables: Mapping[str, str] = self.body.get("env") or {}  # type: ignore[assignment]
        asked = (int(name.rpartition(":")[2]) for name in variables if name.startswith("-p "))
        return [22, *asked][: self.host.direct_ports]

    @property
    def rate(self) -> float:
        """The cost of an hour while the contract runs, without its disk."""
        return self.host.price if self.price is None else self.price

    @property
    def disk_rate(self) -> float:
        return self.disk * self.host.storage / HOURS_A_MONTH


class Containers(Protocol):
    """Runs the containers of contracts. `started` sets the contract's ports, and may set its host's
    address.
    """

    def started(self, contract: Contract) -> None: ...

    def stopped(self, contract: Contract) -> None: ...

    def removed(self, contract: Contract) -> None: ...


class NoContainers:
    """For tests of requests: contracts are records."""

    def started(self, contract: Contract) -> None:
        """Each container has ports of its own on the address of its host."""
        first = 20_000 + 64 * contract.id % 10_000
        contract.ports = {port: first + number for number, port in enumerate(contract.wanted_ports)}

    def stopped(self, contract: Contract) -> None:
        pass

    def removed(self, contract: Contract) -> None:
        pass


@dataclass
class VastMarket:
    """Hosts and contracts. A container runs `loads_seconds` after its contract was granted the
    machine.

    `advance` moves the clock, which otherwise is this computer's.
    """

    hosts: list[Host] = field(default_factory=list)
    containers: Containers = field(default_factory=NoContainers)
    loads_seconds: float = 0.0
    contracts: dict[int, Contract] = field(default_factory=dict)
    ahead: float = 0.0
    _ids: count[int] = field(default_factory=lambda: count(7_000_001))
    _asks: count[int] = field(default_factory=lambda: count(31_000_001))

    def __post_init__(self) -> None:
        for host in self.hosts:
            host.ask = next(self._asks)

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += seconds

    def add(self, host: Host) -> Host:
        """Puts a machine on offer."""
        host.ask = next(self._asks)
        self.hosts.append(host)
        return host

    def alive(self) -> list[Contract]:
        """The contracts that exist, in the order of their start."""
        return [contract for contract in self.contracts.values() if contract.destroyed is None]

    def least_bid(self, host: Host) -> float:
        """The lowest bid that would run on a host now."""
        bids = [
            one.price
            for one in self.alive()
            if one.host is host and one.granted is not None and one.price
        ]
        highest = max([*bids, host.rival or 0.0])
        return max(host.floor, highest + STEP if highest else 0.0)

    def order(
        self, host: Host, price: float | None, disk: float, body: dict[str, object]
    ) -> Contract:
        """Makes a contract. Whether it runs is decided at once; the offer is used up."""
        contract = Contract(next(self._ids), host, price, disk, body, self.now())
        label = body.get("label")
        contract.label = label if isinstance(label, str) else None
        self.contracts[contract.id] = contract
        host.ask = next(self._asks)
        self.settle(host)
        return contract

    def destroy(self, contract: Contract) -> None:
        """Ends a contract and its bill."""
        self._stop(contract)
        contract.destroyed = self.now()
        self.containers.removed(contract)
        self.settle(contract.host)

    def outbid(self, host: Host, price: float) -> None:
        """Another renter bids for a machine."""
        host.rival = price
        self.settle(host)

    def withdraw(self, host: Host) -> None:
        """The other renters leave: those on demand, and those with bids."""
        host.rival, host.taken = None, False
        self.settle(host)

    def take(self, host: Host) -> None:
        """Another renter takes a machine on demand, whatever the bids are."""
        host.taken = True
        self.settle(host)

    def settle(self, host: Host) -> None:
        """Stops who has no priority on a machine, then lets run who has."""
        here = [one for one in self.alive() if one.host is host and one.wanted]
        winner = self._winner(host, here)
        for contract in here:
            if contract is not winner:
                self._stop(contract)
        if winner is not None and winner.granted is None:
            winner.granted, winner.ever_granted = self.now(), True
            winner.charged_until = winner.granted + self.loads_seconds
            self.containers.started(winner)

    def _winner(self, host: Host, here: list[Contract]) -> Contract | None:
        if host.taken or not host.online:
            return None
        fixed = [one for one in here if one.price is None]
        if fixed:
            return min(fixed, key=lambda one: one.made)
        bidding = [one for one in here if one.price is not None and one.price >= host.floor]
        # Of equal bids, the one that runs goes on.
        best = max(
            bidding, key=lambda one: (one.price or 0.0, one.granted is not None), default=None
        )
        if best is None or (host.rival is not None and (best.price or 0.0) <= host.rival):
            return None
        return best

    def _stop(self, contract: Contract) -> None:
        if contract.granted is None:
            return
        self._charge(contract)
        contract.granted = None
        self.containers.stopped(contract)

    def stop(self, contract: Contract) -> None:
        """Its owner stops a contract; the disk is kept, and is billed."""
        contract.wanted = False
        self._stop(contract)
        self.settle(contract.host)

    def start(self, contract: Contract) -> None:
        contract.wanted = True
        self.settle(contract.host)

    def change_bid(self, contract: Contract, price: float) -> None:
        """The new bid counts from now on."""
        self._charge(contract)
        contract.price = price
        self.settle(contract.host)

    def runs(self, contract: Contract) -> bool:
        """Whether the container of a contract is up: from then on, its GPUs are billed."""
        if contract.granted is None or contract.host.refuses:
            return False
        return self.now() >= contract.granted + self.loads_seconds

    def _charge(self, contract: Contract) -> None:
        """Adds what has run since the last charge, at the rate until now."""
        now = self.now()
        if contract.granted is not None and now > contract.charged_until:
            contract.gpu_usd += (now - contract.charged_until) / 3600 * contract.rate
            contract.charged_until = now

    def billed(self, contract: Contract) -> tuple[float, float]:
        """The dollars that a contract has cost until now: for its GPUs, and for its disk."""
        self._charge(contract)
        end = self.now() if contract.destroyed is None else contract.destroyed
        return contract.gpu_usd, (end - contract.made) / 3600 * contract.disk_rate
