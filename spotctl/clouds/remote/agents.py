"""`RemoteAgents`: prepares booted machines for the providers of clouds, and links to the machines'
agents.

A machine boots with a start-up script, `start_up.sh` with the values of one request: the only thing
that the cloud receives. Once the machine's console has shown its host key, the launcher connects
over ssh and copies what the machine lacks: our code, the packages that payloads import, and the
job's folder. Then it starts the agent's service (`spotctl.agent.rented`) and writes the secrets to
its standard input. All of this may be interrupted at any point and repeated by any process of this
home, even by two at once: archives are named by their digest and renamed into place, and only one
service runs on a machine.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import textwrap
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.known_clouds import has_part, part_of
from pricing_data.market import NO_ZONE, Market
from spotctl.agent.lease import self_deletion
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import NotFound, ProviderError
from spotctl.clouds.link import (
    AgentLink,
    Invocation,
    MachineSupplies,
    ProviderClock,
    link_key,
    link_secret,
)
from spotctl.clouds.provider import CloudProvider, Machine, MachineRequest
from spotctl.clouds.remote import home
from spotctl.clouds.remote.bundle import Archive, Packages, code_wheel, packages_for
from spotctl.clouds.remote.connections import USER, MachineConnection, RemoteMachine
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.clouds.remote.machine_setup import Archives, Bringing, Spreading
from spotctl.clouds.remote.platforms import MachinePlatform
from spotctl.clouds.remote.ssh import client_environment, invocation, lost, ssh_client
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG
from spotctl.home.wall_clock import WallClock

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries
    from spotctl.clouds.remote.prices import PriceBook

CHECKED_EVERY_SECONDS = 20.0
"""How often a cloud is asked what it sees of a machine that boots."""

MAX_SCRIPT_BYTES = 12 * 1024
"""The longest script; EC2 takes 16 KiB before its own encoding."""

MAX_AT_ONCE = 16
"""How many machines are connected to at the same time; the others wait."""


class RemoteAgents:
    """The agents of the machines of one home, over ssh. Methods may be called from any thread.

    `folder`, for its owner alone, holds the ssh key and the key of the links; all state of a
    machine is on the machine. Nothing is read or written before it is needed.
    """

    def __init__(self, folder: Path, clock: ProviderClock) -> None:
        self._folder, self._clock = folder.absolute(), clock
        self._lock, self._packing = threading.RLock(), threading.Lock()
        self._turn = threading.Semaphore(MAX_AT_ONCE)
        self._home: home.RemoteHome | None = None
        self._numbers = count()
        self._connections: dict[str, MachineConnection] = {}
        self._links: dict[str, AgentLink] = {}
        self._code: Archive | None = None
        self._jobs: dict[Path, Archive] = {}
        self._packages: dict[tuple[tuple[str, ...], MachinePlatform], Packages] = {}
        self._checked: set[Path] = set()
        self._spreading = Spreading()

    def start_up(self, request: MachineRequest, cloud: str) -> str:
        """The user-data of a request's machines: a shell script of less than 12 KiB that holds no
        secret.

        The script differs between repetitions of a request, because `lease_until` does. `cloud` is
        aws, gcp or azure. ProviderError: this computer has no ssh client. BadRequest: the payload
        is too large.
        """
        ssh_client()
        return start_up_script(request, cloud, home.public_key(self._folder), self._clock.now())

    def host_key(self, name: str) -> tuple[bytes, str]:
        """The private and the public host key of a machine that gets it with its order; the same
        for the same name.
        """
        return home.host_key(link_secret(link_key(self._folder), f"host key of {name}"))

    def prepare(self, machine: RemoteMachine, supplies: MachineSupplies) -> None:
        """Brings a machine to the point where its agent answers; see `CloudProvider`. Returns at
        once.

        Completed steps are skipped; the tunnels of `supplies` are opened in any case. BadRequest:
        the job's folder cannot be copied. Other failures appear as errors of the machine's link.
        """
        if supplies.folder is not None and supplies.folder not in self._checked:
            check_folder(supplies.folder)
            self._checked.add(supplies.folder)

        def bring(bringing: Bringing) -> None:
            secret = link_secret(link_key(self._folder), machine.id)
            secrets = {
                **supplies.secrets,
                **(supplies.own_secrets(machine.id) if supplies.own_secrets else {}),
            }
            bringing.bring(partial(self._archives, supplies), machine.index, secret, secrets)

        self._connection(machine).prepare(supplies, bring)

    def link(self, machine: RemoteMachine) -> AgentLink:
        """The link to a machine's agent. Its calls raise Unanswered, with the reason, until the
        machine is prepared.

        The link connects by itself if the machine was prepared before, perhaps by another process.
        """
        with self._lock:
            connection = self._connection(machine)
            if machine.id not in self._links:
                secret = link_secret(link_key(self._folder), machine.id)
                self._links[machine.id] = AgentLink(
                    connection.address,
                    machine.id,
                    secret,
                    self._clock,
                    connection.gone,
                    connection.extend_lease,
                )
            return self._links[machine.id]

    def boot_sign(self, machine: RemoteMachine) -> BootSign:
        """How far a running machine's boot has come, as this process has seen."""
        return self._connection(machine).boot_sign()

    def invocation(self, machine: RemoteMachine, command: Sequence[str]) -> Invocation:
        """See `CloudProvider`. NotFound: the machine is gone. Unanswered: it has not booted yet."""
        connection = self._connection(machine)
        if connection.gone():
            raise NotFound(f"{machine.id}: gone (evicted or returned)", (machine.id,))
        host, messages = connection.host(), connection.messages_file()
        words = tuple(invocation(host, command, messages))
        why = partial(lost, host, messages=messages)
        return Invocation(words, client_environment(), str(self._folder), why)

    def forget(self, ids: Sequence[str]) -> None:
        """Ends the connections to machines that are gone."""
        for machine in ids:
            with self._lock:
                link, connection = (
                    self._links.pop(machine, None),
                    self._connections.pop(machine, None),
                )
            if link is not None:
                link.close()
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Ends the ssh processes. The agents go on."""
        self._spreading.close()
        with self._lock:
            self.forget(tuple(self._connections))
            if self._home is not None:
                self._home.close()
                self._home = None

    def _connection(self, machine: RemoteMachine) -> MachineConnection:
        with self._lock:
            if self._home is None:
                self._home = home.RemoteHome(self._folder)
            if machine.id not in self._connections:
                self._connections[machine.id] = MachineConnection(
                    machine, next(self._numbers), self._home, self._turn, self._spreading
                )
            connection = self._connections[machine.id]
            connection.machine = machine
            return connection

    def _archives(self, supplies: MachineSupplies) -> Archives:
        """The archives for these supplies, packed once per process, so that all machines get the
        same archives.
        """
        folder = self._folder / "archives"
        with self._packing:
            if supplies.folder is not None and supplies.folder not in self._jobs:
                self._jobs[supplies.folder] = job_archive(supplies.folder, folder)
            job = None if supplies.folder is None else self._jobs[supplies.folder]
            packages = partial(self._packages_for, supplies.packages) if supplies.packages else None
            if self._code is None:
                # An upgrade in the middle of a run must not send its machines two versions.
                self._code = code_wheel(folder)
            return self._code, job, packages

    def _packages_for(self, names: tuple[str, ...], machine: MachinePlatform) -> Packages:
        """The packages for a platform, chosen once per process."""
        with self._packing:
            if (names, machine) not in self._packages:
                chosen = packages_for(self._folder / "archives", names, machine)
                self._packages[names, machine] = replace(
                    chosen, pack=partial(self._in_turn, chosen.pack)
                )
            return self._packages[names, machine]

    def _in_turn(self, pack: Callable[[], Archive]) -> Archive:
        """Packs once, although the threads of many machines ask for it."""
        with self._packing:
            return pack()


class RentingProvider(WallClock, CloudProvider):
    """The base of providers whose machines are rented from a cloud and reached over ssh.

    `agents` prepare the machines and link to them, and `prices` are the stored prices of the
    cloud's markets. A cloud says how to reach a machine.
    """

    def __init__(self, agents: RemoteAgents, prices: PriceBook) -> None:
        self._agents, self._prices = agents, prices
        self._checked: dict[str, tuple[float, str]] = {}

    @abstractmethod
    def remote(self, machine: str) -> RemoteMachine:
        """How to reach a machine. NotFound: the machine is gone, or never was; Unanswered: it has
        no address yet.
        """

    usual_market: tuple[str, str, str] | None = None
    """The variable with the region where this computer rents by default, the region without it, and
    a small type. None: the cloud checks no orders."""

    assumed = 0
    """How long before it was first seen a price counts as in force."""

    def usual_request(self) -> MachineRequest | None:
        if self.usual_market is None:
            return None
        variable, region, small = self.usual_market
        market = Market(self.name, os.environ.get(variable) or region, NO_ZONE, small)
        tags = {INSTALLATION_TAG: "spotctl-doctor"}
        return MachineRequest("check", market, 1, 1_000_000_000, 0, tags)

    def offers(self) -> tuple[Market, ...]:
        return self._prices.markets(self.name)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._prices.prices(market, start, end, self.assumed)

    def link(self, machine: str) -> AgentLink:
        return self._agents.link(self.remote(machine))

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        self._agents.prepare(self.remote(machine.id), supplies)

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        return self._agents.invocation(self.remote(machine), command)

    def console(self, machine: str) -> str:
        return self.remote(machine).console()

    def boot_sign(self, machine: str) -> BootSign:
        """See `CloudProvider`. What the cloud itself sees of a machine is a sign, too: consoles may
        be late, or may not be read."""
        try:
            sign = self._agents.boot_sign(self.remote(machine))
        except ProviderError:
            # It has no address yet.
            sign = BootSign("running")

        if sign.stage not in ("running", "console"):
            return sign

        asked, seen = self._checked.get(machine, (-inf, ""))
        if time.monotonic() - asked >= CHECKED_EVERY_SECONDS:
            with suppress(ProviderError):
                seen = self.seen_by_cloud(machine)
            self._checked[machine] = time.monotonic(), seen

        return replace(sign, sign=f"{sign.sign} {seen}".strip())

    def seen_by_cloud(self, machine: str) -> str:  # noqa: ARG002 - see above
        """The words of the cloud's own checks and agent about a machine that boots; empty if it has
        neither.
        """
        return ""

    def close(self) -> None:
        self._agents.close()


def start_up_script(request: MachineRequest, cloud: str, public_key: str, now: int) -> str:
    """The script. `now` is the moment of the request on the provider's clock. BadRequest: the
    payload is too large.
    """
    payload = None if request.payload is None else request.payload.to_json()
    machine = {"cloud": cloud, "lease_until": request.lease_until, "payload": payload}
    # Where switching off is enough, a cloud has no way of its own in which machines delete
    # themselves.
    deletion = b""
    if has_part(cloud, "self_deletion"):
        path = part_of(cloud, "self_deletion").__file__
        assert path is not None
        deletion = Path(path).read_bytes()

    values = {
        "@USER@": USER,
        "@CONTAINERS@": "yes" if request.containers else "",
        "@LEASE_UNTIL@": str(request.lease_until // 1_000_000),
        "@LEASE_SECONDS@": str(max(request.lease_until - now, 0) // 1_000_000),
        "@PUBLIC_KEY@": f"restrict,port-forwarding,pty {public_key}",
        "@SELF_DELETION@": _packed(Path(self_deletion.__file__).read_bytes()),
        "@THIS_CLOUD@": _packed(deletion),
        "@MACHINE@": _packed(json.dumps(machine, separators=(",", ":")).encode()),
    }

    script = Path(__file__).with_name("start_up.sh").read_text()
    for name, value in values.items():
        script = script.replace(name, value)
    if len(script.encode()) > MAX_SCRIPT_BYTES:
        problem = (
            f"the start-up script of a machine would be {len(script.encode())} bytes long, but "
            f"the limit is {MAX_SCRIPT_BYTES}: make the job's setup or environment shorter, for "
            "example by a script in the job's folder"
        )
        raise BadRequest(problem)

    return script


def _packed(content: bytes) -> str:
    return "\n".join(
        textwrap.wrap(base64.b64encode(gzip.compress(content, 9, mtime=0)).decode(), 120)
    )
