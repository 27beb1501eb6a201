"""Machines of a Ray cluster: a node is a task of Ray, and joins the job as a node of any other computer does."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agileml.engines.base import FleetEvent, Gone, Joined
from agileml.engines.local.fleet import LocalFleet
from agileml.engines.local.processes import Processes
from agileml.engines.ray.cluster import RayCluster
from agileml.engines.ray.cluster_view import LOOK_SECONDS
from agileml.engines.ray.placement import placement_options
from agileml.engines.ray.shipped_code import zipped_package
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.output import Output, Printed
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.secret_file import SECRET_VARIABLE

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


class RayFleet(LocalFleet):
    """Runs the controller here, and nodes where Ray places them.

    The controller's heartbeats decide which node is lost; that Ray misses one is a hint, and mostly comes later.
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
            self._mention_waiting(now)
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

    def _mention_waiting(self, now: float) -> None:
        for name in self._cluster.waiting:
            if self._late.get(name, now) < now:
                del self._late[name]
                self._output(Printed(name, "waits for Ray to start it: no machine of the cluster has room for it"))
