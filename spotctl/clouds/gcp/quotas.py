"""Google's quotas of machines in a region, from the SDK's description of the region. Pure.

Metrics are those of "Allocation quotas" in the Compute Engine documentation. Where spot machines have no quota of their
own, or one of 0, they count against the quota of all machines. A project's quota of GPUs counts all regions together.
"""

from __future__ import annotations

from typing import Any

from spotctl.clouds.gcp.names import CLOUD
from spotctl.home.quotas import Quota, QuotaUnit

_VCPUS, _ALL_VCPUS, _ALL_GPUS = "CPUS", "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"
_GPUS = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
}
"""The metric of each family whose GPUs belong to the machine type."""

_WITH_VCPUS = ("c2", "c2d", "c3", "e2", "m1", "m2", "m3", "n2", "n2d", "t2a", "t2d")
"""The series whose vCPUs may have a quota of their own, such as `N2_CPUS`."""

_VARIANTS = ("", "-highcpu", "-highmem", "-standard")


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
    series = () if _limits(region).get(f"PREEMPTIBLE_{_VCPUS}") else _vcpus_of_series(region, spot=True)
    return (vcpus, *series, *gpus) if region.quotas else ()


def on_demand_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """The quotas of series, and of GPUs. `CPUS` is left out: it holds for the series that have none of their own."""
    limits = _limits(region)
    stated = ((family, limits[metric]) for family, metric in _GPUS.items() if metric in limits)
    gpus = (Quota(CLOUD, region.name, family, limit, QuotaUnit.GPUS, spot=False) for family, limit in stated)
    return (*_vcpus_of_series(region, spot=False), *gpus)


def project_quotas(project: Any) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """The quotas of all regions together: of vCPUs on demand, and of GPUs, which spot machines and others share."""
    limits = _limits(project)
    vcpus = [Quota(CLOUD, None, None, limits[_ALL_VCPUS], QuotaUnit.VCPUS, spot=False)] if _ALL_VCPUS in limits else []
    if (most := limits.get(_ALL_GPUS)) is None:
        return tuple(vcpus)
    return (*vcpus, *(Quota(CLOUD, None, None, most, QuotaUnit.GPUS, spot=spot) for spot in (True, False)))


def _vcpus_of_series(region: Any, *, spot: bool) -> tuple[Quota, ...]:  # noqa: ANN401  # the SDK's messages are not annotated
    """The quotas of single series, which spot machines without a quota of their own share."""
    limits = _limits(region)
    stated = ((series, limits.get(f"{series.upper()}_{_VCPUS}")) for series in _WITH_VCPUS)
    return tuple(
        Quota(CLOUD, region.name, "+".join(series + name for name in _VARIANTS), limit, QuotaUnit.VCPUS, spot=spot)
        for series, limit in stated
        if limit is not None
    )


def _limit(region: Any, metric: str) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """The limit of spot machines or, without one, that of all machines; None if Google states neither."""
    limits = _limits(region)
    return limits.get(f"PREEMPTIBLE_{metric}") or limits.get(metric, limits.get(f"PREEMPTIBLE_{metric}"))


def _limits(stated: Any) -> dict[str, int]:  # noqa: ANN401  # the SDK's messages are not annotated
    return {quota.metric: int(quota.limit) for quota in stated.quotas}
