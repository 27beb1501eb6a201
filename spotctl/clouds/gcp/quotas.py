"""Google's quotas of machines in a region, from the SDK's description of the region. Pure.

Metrics are those of "Allocation quotas" in the Compute Engine documentation. Where spot machines have no quota of their
own, or one of 0, they count against the quota of all machines. A project's quota of GPUs counts all regions together.
"""

from __future__ import annotations

from typing import Any

from spotctl.clouds.gcp.names import CLOUD
from spotctl.home.quotas import Quota, QuotaUnit

_VCPUS, _ALL_GPUS = "CPUS", "GPUS_ALL_REGIONS"
_GPUS = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
}
"""The metric of each family whose GPUs belong to the machine type."""


def spot_vcpus(region: Any) -> int:  # noqa: ANN401  # the SDK's messages are not annotated
    """How many vCPUs spot machines may have in a region."""
    return _limit(region, _VCPUS) or 0


def on_demand_vcpus(region: Any) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """How many vCPUs machines on demand may have in a region; None if Google does not say."""
    return _limits(region).get(_VCPUS)


def spot_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """All quotas that Google states for a region."""
    vcpus = Quota(CLOUD, region.name, None, spot_vcpus(region), QuotaUnit.VCPUS)
    limits = {family: _limit(region, metric) for family, metric in _GPUS.items()}
    stated = ((family, limit) for family, limit in limits.items() if limit is not None)
    gpus = (Quota(CLOUD, region.name, family, limit, QuotaUnit.GPUS) for family, limit in stated)
    return (vcpus, *gpus) if region.quotas else ()


def on_demand_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """The quotas of GPUs. `CPUS` is left out: on demand, most families have a quota of vCPUs of their own."""
    limits = _limits(region)
    stated = ((family, limits[metric]) for family, metric in _GPUS.items() if metric in limits)
    return tuple(Quota(CLOUD, region.name, family, limit, QuotaUnit.GPUS, spot=False) for family, limit in stated)


def project_quotas(project: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """The quota of all GPUs in all regions, which spot machines and machines on demand share."""
    most = _limits(project).get(_ALL_GPUS)
    if most is None:
        return ()
    return tuple(Quota(CLOUD, None, None, most, QuotaUnit.GPUS, spot=spot) for spot in (True, False))


def _limit(region: Any, metric: str) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """The limit of spot machines or, without one, that of all machines; None if Google states neither."""
    limits = _limits(region)
    return limits.get(f"PREEMPTIBLE_{metric}") or limits.get(metric, limits.get(f"PREEMPTIBLE_{metric}"))


def _limits(stated: Any) -> dict[str, int]:  # noqa: ANN401  # the SDK's messages are not annotated
    return {quota.metric: int(quota.limit) for quota in stated.quotas}
