"""A Ray cluster of several machines on this computer, which are taken away one by one."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent.container.processes import kill
from tests.agileml.engines.jobs import processes

HERE = "127.0.0.2"
BARE = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""Without helpers of Ray that no test needs."""

ATTEMPTS = 5


@dataclass
class Cluster:
    """Its head is a reliable machine."""

    cluster: Any
    gcs: Any
    added: list[Any] = field(default_factory=list)

    def add(self) -> Any:  # noqa: ANN401 - as Ray types it
        """A transient machine."""
        self.added.append(
            self.cluster.add_node(
                num_cpus=8, resources={"transient": 1}, node_ip_address=HERE, **BARE
            )
        )
        return self.added[-1]

    def remove_added(self) -> None:
        """Until Ray knows, it would place nodes there."""
        import ray

        while self.added:
            self.cluster.remove_node(self.added.pop(), allow_graceful=False)
        until = time.monotonic() + 240
        while sum(node["Alive"] for node in ray.nodes()) > 1:
            assert time.monotonic() < until, ray.nodes()
            time.sleep(0.1)

    def kill(self, machine: Any) -> None:  # noqa: ANN401
        """With everything on it."""
        raylet = machine.all_processes["raylet"][0].process
        raylet.kill()
        # Its workers end once it is not even a zombie.
        raylet.wait()

    def drain(self, machine: Any) -> None:  # noqa: ANN401
        preemption, deadline = 2, int(1000 * (time.time() + 300))
        accepted, why = self.gcs.drain_node(machine.node_id, preemption, "taken away", deadline)
        assert accepted, why


def started(cluster: Callable[[], Any], folder: str) -> Any:  # noqa: ANN401
    """A cluster of a head. Ray gives a machine 30 seconds to start, which a busy computer may
    need."""
    for attempt in range(ATTEMPTS):
        made = cluster()
        try:
            made.add_node(num_cpus=8, resources={"reliable": 1}, node_ip_address=HERE, **BARE)
        except Exception:
            for pid in processes(folder):
                kill(int(pid))
            shutil.rmtree(f"{folder}/ray", ignore_errors=True)
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return made
    raise AssertionError


@contextmanager
def ray_cluster() -> Iterator[Cluster]:
    """A cluster of a head, to which this process is connected. Nothing of it is left."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable, value in {
            "TMPDIR": name,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        }.items():
            patch.setenv(variable, value)
        made = started(RayCluster, name)
        try:
            ray.init(address=made.address, log_to_driver=False, configure_logging=False)
            yield Cluster(made, ray._raylet.GcsClient(address=made.address))
        finally:
            ray.shutdown()
            made.shutdown()
        shutil.rmtree(f"{name}/ray")
        assert list(Path(name).iterdir()) == []
        assert processes(name) == []
