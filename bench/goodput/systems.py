"""The systems: the command of a node, and of the one coordinator that each may have, which holds no
parameters.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agileml.runtime.folders import SECRET_VARIABLE
from agileml.runtime.ground import is_locked
from bench.goodput.schedule import COORDINATOR, RESTART_SECONDS
from bench.goodput.trainer import TLS, UNIX, job_folder, node_name
from bench.goodput.workload import NODES
from spotctl.agent.container.processes import kill, kill_marked


@dataclass(frozen=True)
class Times:
    """Time-outs of torchft: of a replica's calls, and of its lighthouse until a silent replica
    counts as lost and until a quorum begins without one that has not asked for it.
    """

    replica_seconds: float
    heartbeat_ms: int
    join_ms: int


REPLICA_SECONDS = {"gloo": 5.0, "baby": 30.0}
"""By group of processes: a group in a process of its own takes longer to begin."""

JOIN_MS = {"19k": 300, "1m": 100, "16m": 1000}
"""By network: a quorum that does not wait for the slowest of three leaves it out of the step."""

TORCHRUN = (
    "last_call_timeout=1,read_timeout=30,keep_alive_interval=1,keep_alive_max_attempt=3,"
    "close_timeout=5,is_host=0"
)
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Without it, a survivor of rank 0 does not tell a newcomer its address (PyTorch 2.13): the
newcomer ends after a time-out, and training goes on without it or ends as well."""

RAY_START = (
    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--node-ip-address=127.0.0.1"),
    *("--object-store-memory=80000000", "--disable-usage-stats", "--include-log-monitor=false"),
    *("--dashboard-agent-listen-port=0", "--dashboard-agent-grpc-port=0"),
)
RAY = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
    "RAY_worker_niceness": "0",
    "SPT_NOENV": "1",
}
"""How soon losses of nodes and failures of workers are noticed: before another node can have
started. Workers have the priority of other systems' processes, and their titles spare the
environment, where the mark of a node is."""


def free_port() -> int:
    """A TCP port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Cell:
    """A network, a folder that the processes share, the number of nodes at first, and a port of the
    coordinator.
    """

    size: str
    folder: Path
    first: int = NODES
    torchft: str = ""
    times: Times | None = None
    """Of torchft, in place of those that were best on another schedule."""
    port: int = field(default_factory=free_port)

    def home(self, node: int) -> Path:
        """The folder of a node or of the coordinator, which marks its processes."""
        return self.folder / ("coordinator" if node == COORDINATOR else str(node))


def _no_variables(cell: Cell) -> Mapping[str, str]:  # noqa: ARG001 - most systems need none
    return {}


def _kill_own(cell: Cell, node: int) -> None:
    kill_marked(cell.home(node))


@dataclass(frozen=True)
class System:
    """How its processes are started, and how those of a node are killed."""

    name: str
    node: Callable[[Cell, int, int], Sequence[str]] | None
    """The command of a node, and which start of a node in this cell it is; None if the coordinator
    rents the nodes."""
    coordinator: Callable[[Cell, int], Sequence[str]] | None = None
    """Its command, and which start it is."""
    variables: Callable[[Cell], Mapping[str, str]] = _no_variables
    kill: Callable[[Cell, int], None] = _kill_own
    accounts: bool = True
    """Whether the processor time of processes that ended is known."""

    def command(self, cell: Cell, node: int, life: int) -> Sequence[str] | None:
        """The command of the node or the coordinator; None if this system starts none."""
        if node != COORDINATOR:
            return None if self.node is None else self.node(cell, node, life)
        return None if self.coordinator is None else self.coordinator(cell, life)


# -- DistributedDataParallel, alone and under torchrun ---------------------------------------------


def _ddp(cell: Cell, node: int, life: int) -> Sequence[str]:  # noqa: ARG001 - it is started once
    place = [
        f"RANK={node}",
        f"WORLD_SIZE={NODES}",
        "MASTER_ADDR=127.0.0.1",
        f"MASTER_PORT={cell.port}",
    ]
    return ["env", *place, sys.executable, "-m", "bench.goodput.ddp_node", cell.size]


# Each start is alike.
def _torchrun(least: int, cell: Cell, node: int, life: int) -> Sequence[str]:  # noqa: ARG001
    return [
        *(
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nnodes={least}:{NODES}",
            "--nproc-per-node=1",
        ),
        *(
            "--max-restarts=1000",
            "--monitor-interval=0.1",
            "--rdzv-backend=c10d",
            "--rdzv-id=goodput",
        ),
        *(
            f"--rdzv-endpoint=127.0.0.1:{cell.port}",
            f"--rdzv-conf={TORCHRUN}",
            "--local-addr=127.0.0.1",
        ),
        *("-m", "bench.goodput.ddp_node", cell.size, "--checkpoints"),
    ]


def _store(cell: Cell, life: int) -> Sequence[str]:  # noqa: ARG001 - each start is alike
    return [sys.executable, "-m", "spotctl.integrations.gang", "--serve-store", str(cell.port)]


# -- Ray Train -------------------------------------------------------------------------------------


def _ray(cell: Cell, node: int, life: int) -> Sequence[str]:
    """Nodes that start at once in one folder would take the same names for their sockets."""
    waiting = ["sh", "-c", _ONCE_PUBLISHED, str(_head(cell))]
    own = f"--temp-dir={cell.folder / node_name(node, life)}"
    return [
        *waiting,
        *RAY_START,
        f"--address=127.0.0.1:{cell.port}",
        "--num-cpus=1",
        own,
        "--block",
    ]


def _ray_driver(cell: Cell, life: int) -> Sequence[str]:  # noqa: ARG001 - each start is alike
    return [
        sys.executable,
        "-m",
        "bench.goodput.ray_driver",
        cell.size,
        str(cell.port),
        str(_head(cell)),
    ]


def _head(cell: Cell) -> Path:
    """The file that says that the head of a cluster listens."""
    return cell.folder / "head"


# -- a command of several nodes, launched on the local market --------------------------------------


def _launch(cell: Cell, life: int) -> Sequence[str]:
    """The setup lasts as long as it takes to start a node of the other systems after a loss."""
    job = cell.folder / "job.yaml"
    program = f"{sys.executable} -m bench.goodput.ddp_node {cell.size} --checkpoints"
    fields = {
        "name": "goodput",
        "kind": "command",
        "run": program,
        "nodes": NODES,
        "setup": f"sleep {RESTART_SECONDS:g}",
        "checkpoint": {"path": str(cell.folder / "kept"), "every": "1s"},
        "hours": "10h",
        "resources": {"clouds": ["local"], "types": ["c4.2xlarge"]},
        "strategy": "on-demand",
        "local": {"speed": 1, "start": "2026-01-15T00:10:00Z"},
    }
    job.write_text(json.dumps(fields))
    home = f"SPOTCTL_HOME={cell.folder / 'home'}"
    command = ["launch", str(job), "--yes"] if life == 1 else ["resume", "goodput"]
    return ["env", home, sys.executable, "-m", "spotctl", *command, "--foreground"]


def _kill_rented(cell: Cell, number: int) -> None:
    """One of the machines that run: its hypervisor, its agent, and all that these have started."""
    folders = sorted(state.parent for state in (cell.folder / "home").rglob("state.json"))
    alive = [folder for folder in folders if is_locked(folder / "lock")]
    if not alive:
        return
    machine = alive[number % len(alive)]
    state = json.loads((machine / "state.json").read_text())
    for process in ("pid", "agent"):
        kill(state[process])
    kill_marked(machine)


# -- torchft ---------------------------------------------------------------------------------------


def _replica(wrapper: str, group: str, cell: Cell, node: int, life: int) -> Sequence[str]:  # noqa: ARG001
    seconds = _times(group, cell).replica_seconds
    return [
        cell.torchft,
        "-m",
        "bench.goodput.torchft_node",
        cell.size,
        wrapper,
        group,
        str(seconds),
    ]


def _times(group: str, cell: Cell) -> Times:
    return cell.times or Times(REPLICA_SECONDS[group], 1000, JOIN_MS[cell.size])


# Each start is alike.
def _lighthouse(group: str, cell: Cell, life: int) -> Sequence[str]:  # noqa: ARG001
    times = _times(group, cell)
    silent, joining = (
        f"--heartbeat_timeout_ms={times.heartbeat_ms}",
        f"--join_timeout_ms={times.join_ms}",
    )
    command = [
        str(Path(cell.torchft).with_name("torchft_lighthouse")),
        "--min_replicas=1",
        "--quorum_tick_ms=20",
    ]
    return [*command, silent, joining, f"--bind=[::]:{cell.port}"]


def _lighthouse_address(cell: Cell) -> Mapping[str, str]:
    return {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{cell.port}"}


# -- this project's trainer ------------------------------------------------------------------------


def _coordinator(reliable: int, link: str, cell: Cell, life: int) -> Sequence[str]:
    secret = cell.folder / "secret"
    if life == 1:
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
    nodes = f"{reliable}+{cell.first - reliable}"
    return [
        sys.executable,
        "-m",
        "bench.goodput.trainer",
        cell.size,
        nodes,
        link,
        str(cell.port),
        str(secret),
    ]


_ONCE_PUBLISHED = 'until [ -e "$0" ]; do sleep 0.05; done; exec "$@"'


def _joined(reliable: int, link: str, cell: Cell, node: int, life: int) -> Sequence[str]:
    """A node that joins as one of another computer does, or as one of the same computer: by a
    folder with sockets.
    """
    join = [sys.executable, "-m", "agileml.join"]
    kind = ["--reliable"] if node < reliable else []
    if link == TLS:
        secret = ["--secret-file", str(cell.folder / "secret")]
        return [*join, f"127.0.0.1:{cell.port}", *secret, "--name", node_name(node, life), *kind]
    environment = [
        f"{SECRET_VARIABLE}={(cell.folder / 'secret').read_bytes().hex()}",
        f"GOODPUT_NAME=/{node_name(node, life).replace('-', '/')}",
    ]
    job = job_folder(cell.folder)
    waiting = ["sh", "-c", _ONCE_PUBLISHED, str(job / "node.job")]
    return [*waiting, "env", *environment, *join, str(job), "--name-in", "GOODPUT_NAME", *kind]


def _trainer(name: str, reliable: int, link: str) -> System:
    coordinator = partial(_coordinator, reliable, link)
    return System(name, partial(_joined, reliable, link), coordinator)


TORCHFT = {
    f"torchft-{wrapper}-{group}": System(
        f"torchft-{wrapper}-{group}",
        partial(_replica, wrapper, group),
        partial(_lighthouse, group),
        _lighthouse_address,
    )
    for wrapper in ("ddp", "pure", "hand", "whole")
    for group in ("gloo", "baby")
    if wrapper != "whole" or group == "gloo"
}

SYSTEMS = TORCHFT | {
    system.name: system
    for system in (
        System("ddp", _ddp),
        System("torchrun", partial(_torchrun, 1), _store),
        # The best of four configurations that lose no node, on another schedule; the one above is
        # PyTorch's default.
        System("torchrun-all", partial(_torchrun, NODES), _store, lambda _: {OWN_STORE: "1"}),
        System("command", None, _launch, kill=_kill_rented),
        # A raylet ignores the ends of its children, and with them what they used.
        System("ray", _ray, _ray_driver, lambda _: RAY, accounts=False),
        _trainer("trainer", 0, UNIX),
        _trainer("trainer-tls", 0, TLS),
        _trainer("trainer-reliable", 1, UNIX),
    )
}
