"""The market behind the simulated RunPod: GPUs in stock, pods on them, and what each pod has cost.

The table of sources is in docs/internals/container-clouds.md.
"""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

HOURS_A_MONTH = 730
RUNNING_DISK, STOPPED_VOLUME = 0.10, 0.20
"""Dollars for a GB in a month: of the container's disk and the volume of a pod that runs, and of the
volume of one that is stopped."""


@dataclass(eq=False)
class Stock:
    """GPUs of one model in a place, with prices in dollars for an hour of a GPU.

    A pod's machine is the stock itself. `refuses` images: a pod that starts there is stopped at
    once.
    """

    place: str = "US-TX-3"
    gpu: str = "NVIDIA GeForce RTX 4090"
    display: str = "RTX 4090"
    gib: int = 24
    free: int = 8
    bid: float | None = 0.20
    price: float | None = 0.69
    cuda: float = 12.8
    vcpus_each: int = 16
    ram_each: int = 60
    public_ip: bool = True
    refuses: bool = False

    @property
    def secure(self) -> bool:
        return "-" in self.place


@dataclass(eq=False)
class Pod:
    """An order, which exists until it is terminated. `bid` None: on demand."""

    id: str
    stock: Stock
    count: int
    bid: float | None
    given: Mapping[str, Any]
    made: float
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    status: str = "RUNNING"
    change: str = ""
    gpus: int = 0
    granted: float | None = None
    ended: float | None = None
    charged_until: float = 0.0
    usd: float = 0.0
    address: str = "127.0.0.1"
    ports: dict[int, int] = field(default_factory=dict)

    @property
    def wanted_ports(self) -> list[int]:
        named = (self.given.get("ports") or "").split(",")
        return [int(port.partition("/")[0]) for port in named if port.endswith("/tcp")]

    @property
    def rate(self) -> float:
        """The cost of an hour as it is now, without disks."""
        each = (self.stock.price or 0.0) if self.bid is None else self.bid
        return each * self.gpus if self.status == "RUNNING" else 0.0

    @property
    def disk_rate(self) -> float:
        volume = float(self.given.get("volumeInGb") or 0)
        if self.status != "RUNNING":
            return volume * STOPPED_VOLUME / HOURS_A_MONTH
        disk = float(self.given.get("containerDiskInGb") or 0) + volume
        return disk * RUNNING_DISK / HOURS_A_MONTH


class PodContainers(Protocol):
    """Runs the containers of pods. `started` sets the address and the ports of a pod."""

    def started(self, pod: Pod) -> None: ...

    def stopped(self, pod: Pod) -> None: ...


class NoPodContainers:
    """For tests of requests: pods are records."""

    def started(self, pod: Pod) -> None:
        pod.ports = {port: 20_000 + port % 10_000 for port in pod.wanted_ports}

    def stopped(self, pod: Pod) -> None:
        pass


@dataclass
class RunPodMarket:
    """Stocks and pods. A container runs `loads_seconds` after its pod was granted.

    `advance` moves the clock, which otherwise is this computer's. `balance` is the account's
    credit.
    """

    stocks: list[Stock] = field(default_factory=list)
    containers: PodContainers = field(default_factory=NoPodContainers)
    loads_seconds: float = 0.0
    balance: float = 25.0
    pods: dict[str, Pod] = field(default_factory=dict)
    ahead: float = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += seconds

    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.ended is None]

    def rent(self, stock: Stock, count: int, bid: float | None, given: Mapping[str, Any]) -> Pod:
        letters = string.ascii_lowercase + string.digits
        number = "".join(secrets.choice(letters) for _ in range(14))
        pod = self.pods[number] = Pod(number, stock, count, bid, given, self.now())
        self._start(pod, count, "Rented by User")
        if stock.refuses:
            self.exit(pod, "Runpod")
        return pod

    def resume(self, pod: Pod) -> None:
        """Starts a pod on its machine, without GPUs if others have them."""
        count = pod.count if pod.stock.free >= pod.count else 0
        self._start(pod, count, "Resumed by user")

    def _start(self, pod: Pod, count: int, change: str) -> None:
        self.charge(pod)
        pod.status, pod.gpus, pod.granted = "RUNNING", count, self.now()
        pod.stock.free -= count
        pod.change = self._dated(change)
        self.containers.started(pod)

    def exit(self, pod: Pod, whom: str) -> None:
        """Stops a pod; its GPUs are free, its volume is kept and billed."""
        if pod.status != "RUNNING":
            return
        self.charge(pod)
        pod.stock.free += pod.gpus
        pod.status, pod.gpus, pod.granted = "EXITED", 0, None
        pod.change = self._dated(f"Exited by {whom}")
        self.containers.stopped(pod)

    def outbid(self, pod: Pod, bid: float) -> None:
        """Another renter bids more for a pod's GPUs, and has them."""
        pod.stock.bid = bid
        self.exit(pod, "Runpod")
        pod.stock.free -= pod.count

    def take(self, pod: Pod) -> None:
        """Other renters take all GPUs of the machine of a pod that is stopped."""
        pod.stock.free = 0

    def terminate(self, pod: Pod) -> None:
        self.exit(pod, "user")
        self.charge(pod)
        pod.status, pod.ended = "TERMINATED", self.now()

    def runs(self, pod: Pod) -> bool:
        granted = pod.granted
        return granted is not None and self.now() >= granted + self.loads_seconds

    def charge(self, pod: Pod) -> None:
        """Adds what a pod has cost since the last charge."""
        now = self.now() if pod.ended is None else pod.ended
        since = pod.charged_until or pod.made
        spent = (now - since) / 3600 * (pod.rate + pod.disk_rate)
        pod.usd, pod.charged_until = pod.usd + spent, now
        self.balance -= spent

    def settle(self) -> None:
        """Charges all pods. At no credit, those without a network volume are terminated, and the
        others stopped.
        """
        for pod in self.alive():
            self.charge(pod)
        if self.balance <= 0:
            for pod in self.alive():
                if pod.given.get("networkVolumeId"):
                    self.exit(pod, "Runpod")
                else:
                    self.terminate(pod)

    def _dated(self, change: str) -> str:
        at = datetime.fromtimestamp(self.now(), UTC)
        return f"{change}: {at:%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time)"
