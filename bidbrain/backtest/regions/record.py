"""Records of many zones: how many machines were available at each step, and what they cost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]

_ZONE = re.compile(r"(?P<region>.+?\d+)(?:-?[a-z]|-\d+)$")


def region_of(zone: str) -> str:
    """The region of a zone: `us-east-1` of `us-east-1a`, `us-west1` of `us-west1-b`, `eastus` of `eastus-1`."""
    if match := _ZONE.match(zone):
        return match["region"]
    return zone.rsplit("-", 1)[0] if re.search(r"[a-z]-\d$", zone) else zone


@dataclass(frozen=True, slots=True, eq=False)
class ZonesRecord:
    """Zones by step. `granted[z, t]` machines could be held in zone z during step t, at `spot[z, t]` dollars per
    machine-hour; `on_demand[z]` is the price of machines that are always there. Steps last `gap` microseconds."""

    zones: tuple[str, ...]
    gap: int
    granted: Counts
    spot: Floats
    on_demand: Floats

    @property
    def steps(self) -> int:
        return int(self.granted.shape[1])

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(map(region_of, self.zones))

    def only(self, zones: Sequence[str]) -> "ZonesRecord":
        """The record of some of the zones, in the given order."""
        rows = [self.zones.index(zone) for zone in zones]
        return ZonesRecord(tuple(zones), self.gap, self.granted[rows], self.spot[rows], self.on_demand[rows])

    def window(self, start: int, steps: int) -> "ZonesRecord":
        part = slice(start, start + steps)
        return ZonesRecord(self.zones, self.gap, self.granted[:, part], self.spot[:, part], self.on_demand)
