"""The least that a job could have paid with perfect knowledge of the availability until its deadline. Exact.

Let a schedule hold machines for N ticks, O of them on demand, and enter machines k times. Its work is N ticks less k
delays (an entry shorter than the delay does none, and no cheapest schedule has one), so it needs at least N(k) =
ceil((work + k delay) / tick) ticks and costs N + (ratio - 1) O. With on-demand more expensive than spot, three
exchanges, none of which adds an entry or cost, bring every cheapest schedule into a simple form:

- An on-demand tick within an up spell that is also rented on spot becomes a spot tick: on-demand and spot never share
an up spell.
- All on-demand ticks are worth the same, so they can be moved between blocks that have been entered: only the number of
ticks that the blocks could cover matters, their capacity C, and O is any number up to it.
- Likewise spot ticks can be moved until every up spell in use is used whole, except where the work ends.

So spells are whole, and a schedule is feasible when spot ticks S and capacity C of its entered blocks cover N(k). The
dynamic program goes through the spells and keeps, for each (k, C) and machine held at the boundary, the largest S. The
cheapest schedule with k entries then pays N(k) + (ratio - 1) max(0, N(k) - S).
"""

import numpy as np
from numpy.typing import NDArray

from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from pricing_data.series import Ints

_Table = NDArray[np.int16] | NDArray[np.int32]


def cheapest(up: NDArray[np.bool_], tick: int, terms: DeadlineTerms) -> tuple[int, int]:
    """The ticks on spot and on demand that the cheapest schedule of a job is billed for.

    `up` is the availability until its deadline, in ticks of `tick` microseconds.
    """
    # Each spell is entered at most once, and the delays have to fit in addition to the work.
    spells = 1 + int(np.count_nonzero(up[1:] != up[:-1]))
    spare = up.size * tick - terms.work
    most_entries = min(spells, spare // terms.delay) if terms.delay else (spells if spare >= 0 else 0)
    if most_entries < 1:
        raise ImpossibleJob(f"{up.size} ticks cannot hold the work and the delay of one entry")
    needed = -(-(terms.work + np.arange(most_entries + 1) * terms.delay) // tick)
    if terms.price_ratio <= 1:
        return 0, int(needed[1])
    spot = _most_spot_ticks(up, needed)
    options = []
    for entries in range(1, most_entries + 1):
        ticks = int(needed[entries])
        if spot[entries] >= 0:
            on_demand = max(0, ticks - int(spot[entries]))
            options.append((ticks + (terms.price_ratio - 1) * on_demand, on_demand, ticks))
    _, on_demand, ticks = min(options)
    return ticks - on_demand, on_demand


def _most_spot_ticks(up: NDArray[np.bool_], needed: Ints) -> Ints:
    """By number of entries: the most spot ticks of a schedule whose spot and capacity cover the need; negative if none
    does."""
    entries, most = needed.size, int(needed[-1])
    idle = _unreached((entries, most + 1), np.int16 if up.size < 1 << 14 else np.int32)
    held = idle.copy()  # an on-demand machine at the boundary
    idle[0, 0] = 0
    edges = np.concatenate(([0], np.flatnonzero(up[1:] != up[:-1]) + 1, [up.size]))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        length = end - begin
        np.maximum(idle, held, out=idle)  # a machine may be returned
        on_demand = _with_capacity(held, length)
        np.maximum(on_demand[1:], _with_capacity(idle[:-1], length), out=on_demand[1:])
        if up[begin]:
            # The right-hand side is complete before `idle` changes: a spell is entered once.
            idle[1:] = np.maximum(idle[1:], idle[:-1] + idle.dtype.type(length))
        held = on_demand
    best = np.maximum(idle, held)
    covers = best + np.arange(most + 1) >= needed[:, None]
    most_spot: Ints = np.where(covers, best, -1).max(axis=1).astype(np.int64)
    return most_spot


def _unreached(shape: tuple[int, ...], dtype: np.dtype | type) -> _Table:
    """A table without schedules: so far below 0 that no number of ticks in the type's range lifts it to 0."""
    return np.full(shape, np.iinfo(dtype).min // 2, dtype=dtype)


def _with_capacity(table: _Table, ticks: int) -> _Table:
    """Capacity raised by a block's ticks; the last column stands for every sufficient capacity."""
    raised = _unreached(table.shape, table.dtype)
    kept = table.shape[1] - ticks
    if kept > 0:
        raised[:, ticks:] = table[:, :kept]
    raised[:, -1] = table[:, max(kept - 1, 0) :].max(axis=1)
    return raised
