"""Looks at several zones together count as looks one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.decision.roaming import observed
from bidbrain.strategies.base import Look
from bidbrain.strategies.spells import Known
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE

MARKETS = tuple(
    Market("aws", f"r-{zone // 2}", f"r-{zone // 2}{'ab'[zone % 2]}", "p3.2xlarge")
    for zone in range(4)
)
ZONES = {market: zone for zone, market in enumerate(MARKETS)}


@pytest.mark.parametrize("seed", range(20))
def test_looks_of_a_moment_count_as_one_after_the_other(seed: int) -> None:
    """Also a zone that was seen to be up, and then down, at the same moment; others' markets count
    for nothing.
    """
    rng = np.random.default_rng(seed)
    other = Market("gcp", "us-central1", "us-central1-a", "a2-highgpu-1g")
    moments = np.sort(rng.integers(0, 40, 30)) * 20 * MINUTE
    looks = [
        Look(int(at), (*MARKETS, other)[rng.integers(5)], bool(rng.integers(2))) for at in moments
    ]
    nothing = alone = Known.nothing([market.region for market in MARKETS])
    for look in looks:
        if look.market in ZONES:
            alone = alone.observed([ZONES[look.market]], look.at / HOUR, [look.up])
    together = observed(nothing, ZONES, looks)
    for name in ("up", "since", "seen", "endings", "expected"):
        assert np.array_equal(getattr(alone, name), getattr(together, name)), name
    assert alone.changes == together.changes
