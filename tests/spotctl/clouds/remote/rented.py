"""Machines of namespaces that boot with our start-up script, through a provider that is as small as
can be.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pricing_data.market import Market
from spotctl.agent.container.payload import Payload
from spotctl.clouds.errors import NotFound, ProviderError
from spotctl.clouds.link import AgentLink, MachineSupplies
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.connections import RemoteMachine
from tests.cloud.host import MachineSpec, Metadata
from tests.cloud.namespaces import Namespaces
from tests.servers.loopback import Reply, Request
from tests.waiting import eventually

MARKET = Market("aws", "us-east-1", "us-east-1a", "m5.large")
CODE = Path(__file__).parents[4]

_numbers = count()


class WallClock:
    """The clock of every cloud."""

    speed = 1.0

    def now(self) -> int:
        return time.time_ns() // 1000


CLOCK = WallClock()


def after(seconds: float) -> int:
    return CLOCK.now() + round(seconds * 1e6)


def nothing_known(_: Request) -> Reply:
    return Reply(404)


def shell(script: str, name: str = "work") -> Payload:
    return Payload(name, ("/bin/sh", "-c", script))


@dataclass
class Rented:
    """A machine, and what a launcher in this process knows of it. `name` is also its host name."""

    host: Namespaces
    home: Path
    name: str
    address: str = ""
    ended: list[str] = field(default_factory=list)
    supplies: MachineSupplies = field(default_factory=MachineSupplies)

    def __post_init__(self) -> None:
        self.agents = RemoteAgents(self.home, CLOCK)

    @property
    def id(self) -> str:
        return f"aws:us-east-1:{self.name}"

    @property
    def console(self) -> str:
        return self.host.console(self.name)

    @property
    def machine(self) -> RemoteMachine:
        return RemoteMachine(
            self.id, 3, self.address, 22, lambda: self.console, lambda: bool(self.ended)
        )

    def start(
        self,
        payload: Payload | None = None,
        lease: float = 1000.0,
        cloud: str = "aws",
        metadata: Metadata = nothing_known,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        request = MachineRequest(
            "t", MARKET, 1, None, after(lease), {}, payload, self.supplies.secrets
        )
        script = self.agents.start_up(request, cloud)
        spec = MachineSpec(self.name, script.encode(), metadata, environment or {})
        self.address = self.host.start(spec, self.ended.append).public

    def prepared(self) -> AgentLink:
        """The link, once the agent answers; what a run's loop does."""
        link = self.agents.link(self.machine)

        def answers() -> bool:
            try:
                link.status()
            except NotFound:
                raise
            except ProviderError:
                self.agents.prepare(self.machine, self.supplies)
                return False
            return True

        eventually(answers)
        return link

    def failure(self) -> str:
        """Why the link does not answer."""
        try:
            self.agents.link(self.machine).status()
        except ProviderError as error:
            return str(error)
        return ""

    def sh(self, script: str) -> str:
        """What a command of root prints on the machine, without ssh."""
        return self.host.execute(self.name, "/bin/sh", "-c", script).stdout

    def holders(self, secret: str) -> set[str]:
        """Where the secret is found on the machine."""
        return self.host.holders(self.name, secret)

    def end(self) -> None:
        self.agents.close()
        self.host.power_off(self.name)


@contextlib.contextmanager
# Fields.
def renting(host: Namespaces, place: Path, **supplies: Any) -> Iterator[Rented]:  # noqa: ANN401
    one = Rented(
        host, place / "home", f"machine-{next(_numbers)}", supplies=MachineSupplies(**supplies)
    )
    try:
        yield one
    finally:
        one.end()


@contextlib.contextmanager
def launcher(one: Rented) -> Iterator[subprocess.Popen[str]]:
    """A launcher in a process of its own, which prepares the machine; its output says how far it
    is.
    """
    given = {
        "home": str(one.home),
        "machine": one.id,
        "address": one.address,
        "console": one.console,
        "secrets": dict(one.supplies.secrets),
        "folder": None if one.supplies.folder is None else str(one.supplies.folder),
        "packages": one.supplies.packages,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spotctl.clouds.remote.rented"],
        cwd=CODE,
        env={**os.environ, "PYTHONPATH": str(CODE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(given) + "\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _launch(given: Mapping[str, Any]) -> None:
    agents = RemoteAgents(Path(given["home"]), CLOCK)
    machine = RemoteMachine(
        given["machine"], 3, given["address"], 22, lambda: given["console"], lambda: False
    )
    folder = None if given["folder"] is None else Path(given["folder"])
    supplies = MachineSupplies(given["secrets"], folder, packages=tuple(given["packages"]))
    agents.prepare(machine, supplies)
    link, said = agents.link(machine), ""
    while True:
        try:
            said = f"up {link.status().work}"
            break
        except ProviderError as error:
            if str(error) != said:
                said = str(error)
                print(said, flush=True)  # noqa: T201
            agents.prepare(machine, supplies)
            time.sleep(0.05)
    print(said, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    _launch(json.loads(sys.stdin.readline()))
