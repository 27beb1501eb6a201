"""The time that changes of machines cost a job, as assumed until measured. Pure."""

from __future__ import annotations

from dataclasses import replace

from bidbrain.values import Overheads
from pricing_data.units import HOUR, MINUTE

OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""

_LIMIT = HOUR // 2


def within_the_hour(overheads: Overheads) -> Overheads:
    """The overheads with at most half an hour for a start-up, and for a pause after an eviction: strategies compare
    machines by their next hour, in which machines with longer start-ups would be worthless."""
    return replace(overheads, startup=min(overheads.startup, _LIMIT), eviction=min(overheads.eviction, _LIMIT))
