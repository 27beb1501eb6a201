"""What a simulated cloud runs its machines on: `MachineHost`, and `Records`, a host that only keeps
records.

`tests.cloud.namespaces.Namespaces` is the host whose machines really run. An API server
(`tests.cloud.api`) starts, ends and cuts off machines through a host, and answers their metadata
requests; it never sees a process.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Protocol

from tests.servers.loopback import Reply, Request

MetadataRequest = Request
MetadataAnswer = Reply
Metadata = Callable[[MetadataRequest], MetadataAnswer]
"""Answers a request to 169.254.169.254 from one machine. It is called in a thread of its own, and
may block."""


class Addresses(NamedTuple):
    """`private` is how machines reach each other; `public` is an address of this computer's
    loopback interface.

    Only port 22 of the public address is forwarded.
    """

    private: str
    public: str


@dataclass(frozen=True)
class Router:
    """The router of a site: its address for this computer, and the one for machines. `ports` maps
    each forwarded port of a machine to the router's."""

    outside: str
    inside: str
    ports: dict[int, int]


def always() -> bool:
    """Of a machine that no firewall protects."""
    return True


@dataclass(frozen=True)
class MachineSpec:
    """A machine to start. `name` is used once in the life of a host.

    `user_data` is run at boot, as root, if it starts with "#!". `environment` are system-wide
    variables of its image, for example the addresses of API servers as machines see them
    (`MachineHost.reach`). `admits_ssh` is asked whenever something connects to port 22 of its
    public address, and again until it says yes: the cloud's firewall.
    """

    name: str
    user_data: bytes
    metadata: Metadata
    environment: Mapping[str, str] = field(default_factory=dict)
    admits_ssh: Callable[[], bool] = always


LAPTOP = ("203.0.113.7", "127.0.0.1")
"""This computer's addresses as simulated clouds see them: a firewall that admits one of them admits
us."""


class MachineHost(Protocol):
    """Starts and ends machines. Every call may be made from any thread; a machine that has ended is
    ignored.
    """

    def start(self, spec: MachineSpec, on_end: Callable[[str], None]) -> Addresses:
        """Starts a machine, and returns before it has booted.

        `on_end(name)` is called once, in a thread of the host, when the machine's PID 1 has ended
        by itself, as after `poweroff` from inside; possibly before this call returns. It is not
        called when the host ended the machine.
        """
        ...

    def reach(self, port: int) -> str:
        """The `host:port` at which machines reach this port of this computer's 127.0.0.1."""
        ...

    def power_off(self, name: str) -> None:
        """Switches the machine off: everything on it is killed. Returns when no process of it is
        left.
        """
        ...

    def shut_down(self, name: str, seconds: float) -> None:
        """Shuts the machine down: processes get SIGTERM, and after at most `seconds` it is switched
        off.

        Returns when nothing of the machine runs; call it in a thread to wait for something else.
        """
        ...

    def console(self, name: str) -> str:
        """What the machine has written to its console; also after its end."""
        ...

    def cut(self, name: str) -> None:
        """Disconnects the network: packets are lost silently, including those to the metadata
        address.
        """
        ...

    def plug_in(self, name: str) -> None:
        """Reconnects the network."""
        ...

    def close(self) -> None:
        """Ends all machines, and everything that the host made."""
        ...


@dataclass
class _Record:
    spec: MachineSpec
    on_end: Callable[[str], None]
    addresses: Addresses
    running: bool = True
    connected: bool = True
    console: str = ""


class Records:
    """A host without processes, for tests of requests, refusals and tokens. Addresses are made up.

    `running` names the machines that have not ended; `end` plays a machine that powers itself off.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: dict[str, _Record] = {}
        self._numbers = count(2)

    def start(self, spec: MachineSpec, on_end: Callable[[str], None]) -> Addresses:
        with self._lock:
            if spec.name in self._machines:
                raise ValueError(f"there was a machine {spec.name} already")
            addresses = addresses_of(0, next(self._numbers))
            self._machines[spec.name] = _Record(spec, on_end, addresses)
        return addresses

    def reach(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def power_off(self, name: str) -> None:
        self._machines[name].running = False

    # No process runs that could take time to end.
    def shut_down(self, name: str, seconds: float) -> None:  # noqa: ARG002
        self.power_off(name)

    def console(self, name: str) -> str:
        return self._machines[name].console

    def cut(self, name: str) -> None:
        self._machines[name].connected = False

    def plug_in(self, name: str) -> None:
        self._machines[name].connected = True

    def close(self) -> None:
        for name in self.running():
            self.power_off(name)

    def running(self) -> tuple[str, ...]:
        """The machines that have not ended."""
        with self._lock:
            return tuple(name for name, one in self._machines.items() if one.running)

    def spec(self, name: str) -> MachineSpec:
        """What a machine was started with."""
        return self._machines[name].spec

    def end(self, name: str) -> None:
        """Plays a machine that powers itself off."""
        with self._lock:
            one = self._machines[name]
            ended, one.running = one.running, False
        if ended:
            one.on_end(name)

    def write_console(self, name: str, text: str) -> None:
        """Simulates output of a machine on its console."""
        self._machines[name].console += text

    def ask(self, name: str, request: MetadataRequest) -> MetadataAnswer:
        """The metadata service's answer to a machine."""
        return self._machines[name].spec.metadata(request)


CLOUDS = 1024
MACHINES = 4096
"""The test clouds that have addresses on this computer at the same time, and the addresses of
each."""


def addresses_of(cloud: int, number: int) -> Addresses:
    """The addresses of a machine: they differ in their first byte, and number 1 is the gateway of
    its cloud.
    """
    if not (0 <= cloud < CLOUDS and 0 < number < MACHINES - 1):
        raise ValueError(f"there is no address for machine {number} of test cloud {cloud}")
    offset = cloud * MACHINES + number
    private, public = (
        ipaddress.ip_address(network) + offset for network in ("10.64.0.0", "127.64.0.0")
    )
    return Addresses(str(private), str(public))
