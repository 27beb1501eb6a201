"""The quotas that Google states, as spotctl counts machines against them. Pure.

Metrics are those of "Allocation quotas" in the Compute Engine documentation. A region has one quota
of vCPUs for the series without a quota of their own, one for some series, and one for each kind of
GPU. Spot machines have the same ones with `PREEMPTIBLE_` before their names; where they have none,
or one of 0, they count against the quota of all machines. A project's quota of GPUs counts all
regions together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotctl.clouds.gcp.orders import CLOUD
from spotctl.home.quotas import Quota, QuotaUnit

VCPUS = "CPUS"
_SPOT = "PREEMPTIBLE_"
_ALL_VCPUS, _ALL_GPUS = "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"
_SERIES = ("c2", "c2d", "c3", "e2", "m1", "m2", "m3", "n2", "n2d", "t2a", "t2d")
"""The series whose vCPUs may have a quota of their own, such as `N2_CPUS`."""

_VARIANTS = ("", "-highcpu", "-highmem", "-standard")
_GPUS = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
}
"""The metric of each family whose GPUs belong to the machine type."""

_FAMILIES = (
    *(
        (
            "+".join(series + variant for variant in _VARIANTS),
            f"{series.upper()}_{VCPUS}",
            QuotaUnit.VCPUS,
        )
        for series in _SERIES
    ),
    *((family, metric, QuotaUnit.GPUS) for family, metric in _GPUS.items()),
)


# The SDK's messages are not annotated.
def limits_of(stated: Any) -> dict[str, int]:  # noqa: ANN401
    """The limits of a region or a project by their metrics."""
    return {quota.metric: int(quota.limit) for quota in stated.quotas}


def spot_limit(limits: Mapping[str, int], metric: str) -> int | None:
    """The limit of spot machines or, without one, that of all machines; None: neither is stated."""
    own = limits.get(_SPOT + metric)
    return own or limits.get(metric, own)


# The SDK's messages are not annotated.
def region_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401
    """The quotas of spot machines in a region, then those of machines on demand.

    `CPUS` is left out for machines on demand: it holds for the series that have none of their own.
    """
    limits = limits_of(region)
    if not limits:
        return ()

    vcpus = spot_limit(limits, VCPUS) or 0
    quotas = [Quota(CLOUD, region.name, None, vcpus, QuotaUnit.VCPUS)]
    for spot in (True, False):
        # Only spot machines without a quota of their own share the quotas of the series.
        has_own = spot and limits.get(_SPOT + VCPUS)
        for family, metric, unit in _FAMILIES:
            limit = spot_limit(limits, metric) if spot else limits.get(metric)
            if limit is None or (has_own and unit is QuotaUnit.VCPUS):
                continue
            quotas.append(Quota(CLOUD, region.name, family, limit, unit, spot=spot))

    return tuple(quotas)


# The SDK's messages are not annotated.
def project_quotas(project: Any) -> tuple[Quota, ...]:  # noqa: ANN401
    """The quotas of all regions: of vCPUs on demand, and of GPUs, which all machines share."""
    limits, quotas = limits_of(project), list[Quota]()
    if _ALL_VCPUS in limits:
        quotas.append(Quota(CLOUD, None, None, limits[_ALL_VCPUS], QuotaUnit.VCPUS, spot=False))
    if _ALL_GPUS in limits:
        for spot in (True, False):
            quotas.append(Quota(CLOUD, None, None, limits[_ALL_GPUS], QuotaUnit.GPUS, spot=spot))
    return tuple(quotas)
