"""What holds in a cloud's market by default: what changes of machines cost a job in time."""

from __future__ import annotations

from bidbrain.values import Overheads
from pricing_data.units import MINUTE

OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""
