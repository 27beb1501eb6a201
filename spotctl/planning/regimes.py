"""What holds in a cloud's market by default: what changes of machines cost a job in time."""

from __future__ import annotations

from dataclasses import replace

from bidbrain.values import Overheads
from pricing_data.units import HOUR, MINUTE

OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""

_LONGEST = HOUR // 2


def within_the_hour(overheads: Overheads) -> Overheads:
    """At most half an hour for a start-up, and for a pause after an eviction: strategies compare machines by their next
    hour, and all would be worthless to them if starting took it whole."""
    return replace(overheads, startup=min(overheads.startup, _LONGEST), eviction=min(overheads.eviction, _LONGEST))
