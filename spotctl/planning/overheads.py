"""The time that changes of machines cost a job, as assumed until measured. Pure."""

from dataclasses import replace

from bidbrain.values import Overheads
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.files.job.programs import Training
from spotctl.files.job.spec import JobSpec

OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""

_LIMIT = HOUR // 2
_LOCAL_STARTUP, _LOCAL_SPLIT_STARTUP = 1.5, 4.0
"""Seconds until a process of this computer works. Models that are split are mostly PyTorch's, whose import takes two
seconds of a core, and more nodes than there are cores start at a time."""


def within_the_hour(overheads: Overheads) -> Overheads:
    """The overheads with at most half an hour for a start-up, and for a pause after an eviction: strategies compare
    machines by their next hour, in which machines with longer start-ups would be worthless."""
    return replace(overheads, startup=min(overheads.startup, _LIMIT), eviction=min(overheads.eviction, _LIMIT))


def with_local_starts(overheads: Overheads, spec: JobSpec) -> Overheads:
    """The overheads of a job; a process of this computer starts no faster because the market's clock is fast."""
    if not spec.is_local:
        return overheads
    split = isinstance(spec.program, Training) and spec.program.parallel is not None
    seconds = _LOCAL_SPLIT_STARTUP if split else _LOCAL_STARTUP
    return replace(overheads, startup=max(overheads.startup, round(seconds * spec.local.speed * SECOND)))
