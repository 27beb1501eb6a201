"""What machines cost on the simulated Google Cloud: one price per vCPU, everywhere and at all
times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from google.cloud import compute_v1

from pricing_data.units import DAY, format_time
from tests.cloud.api import now_micros
from tests.cloud.gcp_project import ON_DEMAND_USD, SPOT_USD
from tests.servers.gcp import Gcp, history, machine, preempted, priced, sku
from tests.servers.gcp_world import MACHINES

T2A = machine("t2a-standard-4", 4, 16)
"""A machine type with an ARM processor."""
T2A.architecture = "ARM64"

_DAYS = 30
_PREEMPTED_PER_DAY = 0.05
_SERIES = ("N1 Predefined", "N2", "E2", "A2", "T2D AMD", "T2A Arm")
_MACHINES = (*MACHINES, T2A)


def prices_of(regions: Mapping[str, Sequence[str]]) -> Gcp:
    """The price service for these regions and their zones."""
    zones = {region: {zone: list(_MACHINES) for zone in own} for region, own in regions.items()}
    histories = {
        (region, str(one.name)): _history(region, one) for region in regions for one in _MACHINES
    }
    nanos, published = round(ON_DEMAND_USD * 1e9), datetime.now(UTC)
    skus = []
    for series in _SERIES:
        skus += [
            sku(
                f"{series} Instance Core running in Americas",
                nanos,
                list(regions),
                effective=published,
            ),
            sku(
                f"{series} Instance Ram running in Americas",
                1,
                list(regions),
                "GiBy.h",
                effective=published,
            ),
        ]
    skus.append(
        sku(
            "Nvidia Tesla A100 80GB GPU running in Americas",
            nanos,
            list(regions),
            effective=published,
        )
    )
    skus.append(sku("SSD backed Local Storage", 1, list(regions), "GiBy.mo", effective=published))
    return Gcp(zones=zones, histories=histories, skus=skus)


def _history(region: str, machine: compute_v1.MachineType) -> compute_v1.CapacityHistoryResponse:
    today = now_micros() // DAY * DAY
    days = [today - number * DAY for number in range(_DAYS, 0, -1)]
    price = priced(format_time(days[0]), None, round(SPOT_USD * machine.guest_cpus * 1e9))
    rates = [
        preempted(format_time(day), format_time(day + DAY), _PREEMPTED_PER_DAY) for day in days
    ]
    return history(region, str(machine.name), [price], rates)
