"""How the machines of a training become its nodes: on this computer through a folder, elsewhere through a port.

Rented machines reach the controller through ssh, at a port of their own loopback interface, so the launcher
needs no address that they can reach. Nodes reach each other at their private addresses, over TLS.
"""

import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agileml.join import node_name
from agileml.transport import TcpAddress
from spotctl.agent.files import Watched, replace_json
from spotctl.clouds.capabilities import ReverseTunnel
from spotctl.run.environment import RunEnvironment

HOST = "127.0.0.1"

PORT = 7070
"""Port at which rented machines find the controller."""

_PATIENCE = "3600"
"""Seconds that a node waits for a controller that copies data. Its machine's lease ends earlier if there is none."""

_PORT_FILE = "port.json"


@dataclass(frozen=True, slots=True)
class NodesHere:
    """Machines are processes of this computer and share the rendezvous folder."""

    folder: Path
    listen: None = None
    reach: tuple[ReverseTunnel, ...] = ()

    def command(self, python: str, *, patient: bool) -> list[str]:  # noqa: ARG002 - nodes share its folder
        return [python, "-m", "agileml.join", str(self.folder), "--name-in", "SPOTCTL_MACHINE"]

    def name(self, machine: str) -> str:
        return machine


@dataclass(frozen=True, slots=True)
class NodesElsewhere:
    """Machines are other computers; `port` is where the controller listens on this one."""

    port: int

    @property
    def listen(self) -> TcpAddress:
        """The address at which the controller listens for nodes of other computers."""
        return TcpAddress(HOST, self.port)

    @property
    def reach(self) -> tuple[ReverseTunnel, ...]:
        """Ports of this computer that the machines need."""
        return (ReverseTunnel(PORT, HOST, self.port),)

    def command(self, python: str, *, patient: bool) -> list[str]:
        """The command that joins the training. A `patient` node waits long for a controller that still copies data."""
        named = ["--name-in", "SPOTCTL_MACHINE_ID", "--host", "auto"]
        return [python, "-m", "agileml.join", f"{HOST}:{PORT}", *named, *(["--wait", _PATIENCE] if patient else [])]

    def name(self, machine: str) -> str:
        """The name of the node on a machine."""
        return node_name(machine)


def nodes_of(environment: RunEnvironment) -> NodesHere | NodesElsewhere:
    """How the machines of a run become nodes."""
    folder = environment.rendezvous
    return NodesElsewhere(_port_of(folder)) if environment.rented and folder.is_dir() else NodesHere(folder)


def _port_of(folder: Path) -> int:
    """The controller's port, the same in every process of the run unless another program has taken it."""
    kept = Watched(folder / _PORT_FILE, lambda values: int(values["port"])).value() or 0
    port = free_port(kept) or free_port()
    replace_json(folder / _PORT_FILE, {"port": port})
    return port


def free_port(wanted: int = 0) -> int:
    """The wanted port, or any free one for 0; 0 if the wanted port is taken."""
    with closing(socket.socket()) as probe:
        # Connections of a killed server that are still closing do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])
