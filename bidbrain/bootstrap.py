"""Block bootstrap: confidence intervals for observations that are correlated within blocks, such as days."""

import numpy as np
from numpy.typing import NDArray

from pricing_data.series import Ints

RESAMPLES = 2000
_LEVELS = (0.025, 0.975)


def drawn_blocks(blocks: int, rng: np.random.Generator) -> Ints:
    """Resamples of the numbers 0 to `blocks` - 1, one per row; use the same draws to compare on the same blocks."""
    drawn: Ints = rng.integers(0, blocks, (RESAMPLES, blocks))
    return drawn


def ratio_interval(
    above: NDArray[np.float64], below: NDArray[np.float64], block: Ints, drawn: Ints
) -> tuple[float, float]:
    """The 95% percentile interval of sum(above) / sum(below), for observations in numbered blocks.

    Leaves out resamples in which `below` sums to 0.
    """
    top, base = (np.bincount(block, values)[drawn].sum(axis=1) for values in (above, below))
    low, high = np.quantile(top[base > 0] / base[base > 0], _LEVELS)
    return float(low), float(high)
