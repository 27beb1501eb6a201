"""Small worlds of zones, made from a seed."""

from __future__ import annotations

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.lab.regions.replay import RegionJob, Rules, Window, ZonesRecord
from pricing_data.units import HOUR, MINUTE

ZONES = ("us-east-1a", "us-east-1b", "us-west-2a", "eu-west-1a")
GAP = 10 * MINUTE


def flapping(seed: int, zones: int, steps: int, up_for: float = 12, down_for: float = 8) -> Bools:
    """Zones whose spot comes and goes."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(zones):
        row = list[bool]()
        while len(row) < steps:
            row += [True] * int(rng.geometric(1 / up_for)) + [False] * int(
                rng.geometric(1 / down_for)
            )
        rows.append(row[:steps])
    return np.array(rows, dtype=np.bool_)


def record(up: Bools, seed: int = 0, on_demand: float = 3.0) -> ZonesRecord:
    """A record in which zones have prices of their own, which change now and then."""
    rng = np.random.default_rng(seed)
    zones, steps = up.shape[0], up.shape[1]
    changes = np.cumsum(
        rng.normal(0, 0.05, (zones, steps)) * (rng.random((zones, steps)) < 0.05), axis=1
    )
    spot = np.clip(rng.uniform(0.8, 1.4, (zones, 1)) + changes, 0.2, None)
    listed = on_demand * rng.uniform(1.0, 1.2, (zones,))
    return ZonesRecord(ZONES[:zones], GAP, up.astype(np.int64), spot, listed)


def window(
    up: Bools, work: float, slack: float, seed: int = 0, *, published: bool = False, gb: float = 20
) -> Window:
    """A job of some hours of work at the start of such a record; it fits with one start."""
    job = RegionJob(round(work * HOUR), round(work * slack * HOUR) + 20 * MINUTE, 12 * MINUTE, gb)
    rules = Rules(published, 0.02, {frozenset(("us-east-1", "us-west-2")): 0.01})
    return Window.of(record(up, seed), 0, job, rules)
