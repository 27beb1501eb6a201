"""The `ray` engine: the controller runs in this process's fork server, nodes run where Ray places them."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agileml.engines import job_state
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local.engine import SECRET_BYTES, prepare_job, run_job
from agileml.engines.local.processes import Processes
from agileml.engines.ray.cluster import connected
from agileml.engines.ray.cluster_view import HeadLost
from agileml.engines.ray.fleet import NODE_SHARE, NodeShare, RayFleet
from agileml.engines.script import Script
from agileml.job import Listener, Trained, TrainingJob
from agileml.runtime.attach import publish
from agileml.runtime.code_version import code_version
from agileml.runtime.output import Output, show
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.transport import TcpAddress


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs jobs on the Ray cluster at `address` (HOST:PORT, or `auto` on one of its machines).

    Without an address it uses the cluster to which this process is connected, or that of RAY_ADDRESS; without these,
    it starts one on this computer, which ends with the job. `state` is a folder for the job's state: if this process is
    killed, or the cluster's head is lost, another run with the same folder continues from the newest checkpoint.
    """

    address: str | None = None
    share: NodeShare = NODE_SHARE
    state: Path | None = None

    def run(self, job: TrainingJob | RunnableJob, chaos: Chaos, listener: Listener, output: Output = show) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        return self.play(job, FaultSchedule(chaos), listener, output)

    def play(
        self, job: TrainingJob | RunnableJob, script: Script, listener: Listener, output: Output = show
    ) -> Trained:
        """Trains as `run` does, with faults from a script."""
        try:
            return self._play(job, script, listener, output)
        except HeadLost as error:
            kept = f"run it again with the same state folder, {self.state}" if self.state else "it had no state folder"
            raise HeadLost(f"{error}, and the training ends; {kept}") from error

    def _play(self, job: TrainingJob | RunnableJob, script: Script, listener: Listener, output: Output) -> Trained:
        plan, earlier = prepare_job(job, output), tuple[str, ...]()
        if self.state is not None:
            job_state.prepare(self.state, plan)
        with connected(self.address) as cluster, _free_port(cluster.host) as listen:
            processes = Processes(self.state)
            if self.state is not None:
                # Only now: those of a killed process may take a moment to end.
                earlier = job_state.nodes_so_far(self.state)
            secret = secrets.token_bytes(SECRET_BYTES)
            rendezvous = FolderRendezvous(processes.folder, secret, listen, code_version())
            with closing(RayFleet(plan, processes, rendezvous, cluster, self.share, output)) as fleet:
                publish(plan.node_role(replace(rendezvous, secret=b"")), rendezvous.blobs)
                return run_job(fleet, rendezvous, plan, script, listener, output, earlier)


@contextmanager
def _free_port(host: str) -> Iterator[TcpAddress]:
    """A port for the controller. The system gives it to no other process, also while there is no controller."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
        yield TcpAddress(host, reserved.getsockname()[1])
