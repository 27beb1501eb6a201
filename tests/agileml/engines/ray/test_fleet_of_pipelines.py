"""Where the nodes of a pipeline go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agileml.engines.ray.cluster import RayCluster
from agileml.engines.ray.fleet import NODE_SHARE, RayFleet
from agileml.runtime.prepared_job import PreparedJob, RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.transport import TcpAddress
from tests.agileml.engines.fleet_suite import JOB
from tests.agileml.engines.test_ray_usage import RELIABLE, TRANSIENT, EmptyRay
from tests.agileml.pipeline.run.fleet_jobs import prepared


@pytest.mark.parametrize(
    ("plan", "place"),
    [(prepared(1), None), (PreparedJob(JOB, None), {"reliable": 0.001})],  # type: ignore[arg-type]
)
def test_nodes_of_a_pipeline_go_to_any_machine(
    plan: RunnableJob, place: object, tmp_path: Path
) -> None:
    """Each is replaced, wherever it was; of a trainer, those that keep the model need a machine
    that stays.
    """
    ray = EmptyRay(RELIABLE, TRANSIENT)
    cluster = RayCluster(ray, own=False)
    rendezvous = FolderRendezvous(tmp_path, b"secret", TcpAddress("127.0.0.2", 1))
    no_processes: Any = None
    RayFleet(plan, no_processes, rendezvous, cluster, NODE_SHARE, print).start_node(
        "r0", reliable=True
    )
    cluster.close()
    assert ray.options[0].get("resources") == place
