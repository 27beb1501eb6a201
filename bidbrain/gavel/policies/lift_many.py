"""The max-min program for many different jobs."""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.lp import CannotHold
from bidbrain.gavel.policies.level_program import KEPT, Levels
from bidbrain.gavel.policies.sifting import Groups, LevelObjective, PriceStart, sift, times_reached

# A group whose level costs less than this part of the mean can have more; less is rounding.
_FREE_PRICE = 1e-9
_LEAST_NEED = 1e-300
# A sample of this size tells whether workers suffice for all levels, but for an error of this order.
_SAMPLED, _LEAST_TIMES = 256, 0.995


@dataclass(frozen=True, slots=True)
class ManyStarts:
    """Where the two stages of a similar problem may start."""

    raising: PriceStart | None = None
    spreading: PriceStart | None = None


@dataclass(frozen=True, slots=True)
class ManyLifted:
    """The largest z, the groups' shares, and the loss of z per unit of each group's level."""

    z: float
    shares: FloatArray
    prices: FloatArray


def lift_many(levels: Levels, starts: ManyStarts) -> tuple[ManyLifted, ManyStarts]:
    """Raises the level of all groups, and spreads the rest among those that can have more."""
    groups = Groups(levels.progress, levels.held(), levels.workers)
    return _at_ceiling(levels, groups, starts) or _raised(levels, groups, starts)


def _at_ceiling(levels: Levels, groups: Groups, starts: ManyStarts) -> tuple[ManyLifted, ManyStarts] | None:
    """The result if z is limited by one group that runs all the time on its fastest type, rather than by workers."""
    most, every = groups.progress.max(axis=1), np.arange(len(levels.need))
    room = np.divide(most, levels.need, out=np.full(len(most), np.inf), where=levels.need > 0)
    limiting = int(room.argmin())
    z = float(room[limiting])
    if not np.isfinite(z):
        z = 0.0
    level = np.minimum(levels.need * z * KEPT, most)
    sample = np.linspace(0, len(level) - 1, min(_SAMPLED, len(level))).astype(np.int64)
    times = times_reached(groups.part(sample), level[sample])
    if times < _LEAST_TIMES:
        return None
    try:
        sifted = sift(groups, LevelObjective(level, 0.0 * level, levels.count, 0.0), starts.spreading, once=times < 1)
    except CannotHold:
        return None
    prices = np.where((every == limiting) & (z > 0), 1 / np.maximum(levels.need, _LEAST_NEED), 0.0)
    return ManyLifted(z, sifted.shares, prices), replace(starts, spreading=sifted.start())


def _raised(levels: Levels, groups: Groups, starts: ManyStarts) -> tuple[ManyLifted, ManyStarts]:
    """The result if workers limit z."""
    need, nothing, total = levels.need, 0.0 * levels.need, float(levels.need.sum())
    raised = sift(groups, LevelObjective(nothing, need, nothing, total), starts.raising)
    shares, spreading, free = raised.shares, starts.spreading, raised.level_prices <= _FREE_PRICE
    if free.any():
        # A level with a price is tight in every optimum; if no other mix is as good, so are the group's shares.
        still = free | raised.tied
        left = np.maximum(0.0, groups.workers - groups.held[~still] @ shares[~still])
        part = Groups(groups.progress[still], groups.held[still], left)
        level = np.minimum(need[still] * raised.z * KEPT, part.progress.max(axis=1))
        spread = sift(part, LevelObjective(level, nothing[still], levels.count[still], 0.0), spreading)
        shares[still], spreading = spread.shares, spread.start()
    return ManyLifted(raised.z, shares, raised.level_prices / total), ManyStarts(raised.start(), spreading)
