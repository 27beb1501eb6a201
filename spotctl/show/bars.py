"""Bar charts made of block characters, one line high (sparklines) or several."""

import numpy as np

from bidbrain.arrays import Floats
from pricing_data.series import PriceSeries, held

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LOG_FROM = 10


def needs_log_scale(low: float, high: float) -> bool:
    """Whether a linear axis would flatten everything but the spikes."""
    return high > _LOG_FROM * low


def columns(values: Floats, top: float, height: int) -> list[str]:
    """Columns from 0 to `top` in `height` lines, the highest line first. Values above 0 are always visible."""
    eighths = np.ceil(values / top * height * 8 - 1e-9) if top > 0 else np.zeros(len(values))
    return _lines(eighths, height)


def sparkline(series: PriceSeries, width: int) -> str:
    """The highest price in each of `width` equal intervals, scaled from the lowest to the highest price.

    The highest, because spikes of minutes evict machines, and a mean over days would hide them. Where spikes
    tower over the rest the bars are logarithmic, as in the plots. Where nothing was observed, there is no bar.
    """
    edges = np.linspace(series.first, series.last, width + 1)
    begin = np.clip(np.searchsorted(series.times, edges[:-1], "right") - 1, 0, None)
    end = np.maximum(np.searchsorted(series.times, edges[1:], "left"), begin + 1)
    tops = np.array([series.prices[a:b].max() for a, b in zip(begin, end, strict=True)], dtype=float)
    low, high = float(series.prices.min()), float(series.prices.max())
    seen = np.ones(width, dtype=bool) if series.watched is None else held(edges.astype(np.int64), series.watched) > 0
    if high == low:
        return _lines(np.where(seen, 1.0, 0.0), 1)[0]
    if needs_log_scale(low, high):
        tops, low, high = np.log(tops), np.log(low), np.log(high)
    return _lines(np.where(seen, 1 + np.round((tops - low) / (high - low) * 7), 0), 1)[0]


def _lines(eighths: Floats, height: int) -> list[str]:
    """Bars whose heights are given in eighths of a line."""
    rows = (np.clip(eighths - 8 * line, 0, 8).astype(int) for line in reversed(range(height)))
    return ["".join(_BLOCKS[level] for level in row) for row in rows]
