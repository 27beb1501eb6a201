"""A job that trains on a cluster where nothing is rented, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec


def answer(spec: JobSpec) -> dict[str, Any]:
    """The plan of a job on Ray in the JSON of `spotctl plan --json`: no machine is chosen, and the job costs nothing.

    Fields:
        job: name of the job
        cluster: Ray cluster on which it trains
        cluster -> spotctl.files.job.spec:JobSpec.cluster
        choice: empty, because nothing is rented
        expected: forecast of the job
        expected.cost_usd: 0
    """
    return {"job": spec.name, "cluster": spec.cluster, "choice": [], "expected": {"cost_usd": 0.0}}


def plan_text(spec: JobSpec) -> str:
    """The plan of a job on Ray in a line."""
    return f"{spec.name}: trains on {nodes_text(spec.cluster)}; nothing is rented, so it adds no cost"


def nodes_text(cluster: Mapping[str, Any]) -> str:
    """`1 reliable + 3 transient nodes of the Ray cluster at 10.0.0.4:6379`."""
    address = cluster["address"]
    where = f"the Ray cluster at {address}" if address else "the Ray cluster of RAY_ADDRESS, or one on this computer"
    return f"{cluster['reliable']} reliable + {cluster['transient']} transient nodes of {where}"
