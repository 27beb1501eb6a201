"""Machines of a Ray cluster: a node is a task of Ray, and joins the job as a node of any other
computer does.
"""

import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agileml.engines.attached import nodes_so_far, prepare_state
from agileml.engines.base import FleetEvent, Gone, Joined
from agileml.engines.chaos import Script
from agileml.engines.local.fleet import SECRET_BYTES, LocalFleet, Processes, prepare_job, run_job
from agileml.engines.ray.cluster import (
    LOOK_SECONDS,
    HeadLost,
    RayCluster,
    connected,
    placement_options,
)
from agileml.engines.ray.role_task import zipped_package
from agileml.job import Listener, Trained, TrainingJob
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.attach import code_version, publish
from agileml.runtime.folders import SECRET_VARIABLE
from agileml.runtime.output import Output, Printed, show
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.transport import TcpAddress

NAME_VARIABLE = "AGILEML_NODE"


DRAIN_SECONDS = 30.0
"""The warning for nodes on a machine that is drained without a deadline."""


WAITING_SECONDS = 20.0
"""A node that Ray has not started by then is mentioned."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """A node's share of its machine, in Ray's terms."""

    cpus: float = 1.0
    gpus: float = 0.0


NODE_SHARE = NodeShare()


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs jobs on the Ray cluster at `address` (HOST:PORT, or `auto` on one of its machines).

    Without an address it uses the cluster to which this process is connected, or that of
    RAY_ADDRESS; without these, it starts one on this computer, which ends with the job. `state` is
    a folder for the job's state: if this process is killed, or the cluster's head is lost, another
    run with the same folder continues from the newest checkpoint.
    """

    address: str | None = None
    share: NodeShare = NODE_SHARE
    state: Path | None = None

    def run(
        self,
        job: TrainingJob | RunnableJob,
        script: Script,
        listener: Listener,
        output: Output = show,
    ) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        try:
            plan = prepare_job(job, output)
            earlier = tuple[str, ...]()
            if self.state is not None:
                prepare_state(self.state, plan)
            with connected(self.address) as cluster, _free_port(cluster.host) as listen:
                processes = Processes(self.state)
                if self.state is not None:
                    # Only now: those of a killed process may take a moment to end.
                    earlier = nodes_so_far(self.state)
                secret = secrets.token_bytes(SECRET_BYTES)
                rendezvous = FolderRendezvous(processes.folder, secret, listen, code_version())
                with closing(
                    RayFleet(plan, processes, rendezvous, cluster, self.share, output)
                ) as fleet:
                    publish(plan.node_role(replace(rendezvous, secret=b"")), rendezvous.blobs)
                    return run_job(fleet, rendezvous, plan, script, listener, output, earlier)
        except HeadLost as error:
            kept = (
                f"run it again with the same state folder, {self.state}"
                if self.state
                else "it had no state folder"
            )
            raise HeadLost(f"{error}, and the training ends; {kept}") from error


@contextmanager
def _free_port(host: str) -> Iterator[TcpAddress]:
    """A port for the controller. The system gives it to no other process, also while there is no
    controller.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
        yield TcpAddress(host, reserved.getsockname()[1])


class RayFleet(LocalFleet):
    """Runs the controller here, and nodes where Ray places them.

    The controller's heartbeats decide which node is lost; that Ray misses one is a hint, and mostly
    comes later.
    """

    def __init__(
        self,
        plan: RunnableJob,
        processes: Processes,
        rendezvous: FolderRendezvous,
        cluster: RayCluster,
        share: NodeShare,
        output: Output,
    ) -> None:
        super().__init__(plan, processes, rendezvous)
        self._cluster = cluster
        self._share = NodeShare(cpus=0) if cluster.own else share
        self._output = output
        self._code = cluster.shared(zipped_package())
        self._looked = time.monotonic()
        self._late: dict[str, float] = {}
        """When to mention nodes that wait for a machine."""

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Has Ray run a node on a machine of this kind."""
        listen = self._rendezvous.listen
        assert listen is not None
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        words = ["-m", "agileml.join", f"{host}:{listen.port}", "--name-in", NAME_VARIABLE]
        environment = {
            NAME_VARIABLE: name,
            SECRET_VARIABLE: self._rendezvous.secret.hex(),
            "OMP_NUM_THREADS": str(max(1, int(self._share.cpus))),
        }

        anywhere = self._plan.nodes_are_alike
        place = {} if anywhere else placement_options(self._cluster.machines, reliable=reliable)
        options = {"num_cpus": self._share.cpus, "num_gpus": self._share.gpus, **place}
        words += ["--reliable"] if reliable else []
        self._cluster.start(name, options, words, environment, self._rendezvous.version, self._code)
        self._running.add(name)
        self._late[name] = time.monotonic() + WAITING_SECONDS
        self._events.append(Joined(name, reliable))

    def events(self) -> Sequence[FleetEvent]:
        """Also warns the nodes on machines that are being drained."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            for name, deadline in self._cluster.draining().items():
                self.stop(name, max(0.0, deadline - time.time()) if deadline else DRAIN_SECONDS)
            for name in self._cluster.waiting:
                if self._late.get(name, now) < now:
                    del self._late[name]
                    self._output(
                        Printed(
                            name,
                            "waits for Ray to start it: no machine of the cluster has room for it",
                        )
                    )

        return super().events()

    def close(self) -> None:
        """Ends the nodes, and then the controller."""
        try:
            self._cluster.close()
        finally:
            super().close()

    def _kill(self, name: str) -> None:
        if name == CONTROLLER:
            super()._kill(name)
        else:
            self._cluster.stop(name)

    def _ended(self) -> Sequence[Gone]:
        return [*super()._ended(), *self._cluster.ended()]
