"""Google's quotas of machines in a region, from the SDK's description of it. Pure.

Metrics are those of "Allocation quotas" in the Compute Engine documentation. Where spot machines have no quota of their
own, they count against that of all machines.
"""

from __future__ import annotations

from typing import Any

from spotctl.clouds.gcp.names import CLOUD
from spotctl.home.quotas import Quota, QuotaUnit

_VCPUS = "CPUS"
_GPUS = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
}
"""By family, for those whose GPUs belong to the machine type."""


def spot_vcpus(region: Any) -> int:  # noqa: ANN401  # the SDK's messages are not annotated
    """How many vCPUs spot machines may have in a region."""
    return _limit(region, _VCPUS) or 0


def on_demand_vcpus(region: Any) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """How many vCPUs machines on demand may have in a region; None if that is not stated."""
    return next((int(one.limit) for one in region.quotas if one.metric == _VCPUS), None)


def spot_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """All that are stated for a region."""
    vcpus = Quota(CLOUD, region.name, None, spot_vcpus(region), QuotaUnit.VCPUS)
    limits = {family: _limit(region, metric) for family, metric in _GPUS.items()}
    gpus = (Quota(CLOUD, region.name, one, limit, QuotaUnit.GPUS) for one, limit in limits.items() if limit is not None)
    return (vcpus, *gpus) if region.quotas else ()


def on_demand_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """Those of GPUs. `CPUS` is left out: on demand, most families have a quota of vCPUs of their own."""
    limits = {one.metric: int(one.limit) for one in region.quotas}
    stated = ((family, limits[metric]) for family, metric in _GPUS.items() if metric in limits)
    return tuple(Quota(CLOUD, region.name, one, limit, QuotaUnit.GPUS, spot=False) for one, limit in stated)


def _limit(region: Any, metric: str) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    limits = {one.metric: int(one.limit) for one in region.quotas}
    found = [limits[name] for name in (f"PREEMPTIBLE_{metric}", metric) if name in limits]
    return max(found, default=None)
