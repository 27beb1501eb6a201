"""Which of many deadlines to keep: one program in which giving up a deadline has a price.

Columns are the seconds of each job on each type, and whether its deadline is given up. For each of some deadlines, the
jobs that are due by then must not use more worker-seconds of a type than there are until then. That is what every plan
fulfills, so the program's number of kept deadlines is a bound. Giving up one costs more than all work together.
"""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies.deadline_plan import DeadlineBatch
from bidbrain.gavel.policies.sifting import Groups, LevelObjective, sift

# Deadlines whose workers are counted: evenly spread among all.
_STAGES = 96


@dataclass(frozen=True, slots=True)
class Lateness:
    """The share of each deadline that is given up, and the price of a second of each job on each type: in dollars over
    all work, with what the workers are worth to other jobs."""

    late: FloatArray
    price: FloatArray


def lateness(batch: DeadlineBatch) -> Lateness:
    """The program's optimum. Each job must have enough time for its work on some type."""
    count, types = batch.alone.shape
    ends = np.unique(np.quantile(batch.left, np.linspace(0, 1, _STAGES + 1)[1:], method="higher"))
    stage, lengths = np.searchsorted(ends, batch.left), np.diff(ends, prepend=0.0)
    usd = batch.scale[:, None] * batch.usd_per_second
    all_work = np.where(np.isfinite(batch.alone), batch.alone * usd, 0.0).max(axis=1).sum()
    # In units of the mean worker-seconds per job; giving up needs no workers.
    unit = batch.workers.sum() * ends[-1] / count
    workers = np.column_stack([lengths[:, None] * batch.workers / unit, np.full(len(ends), np.inf)])
    own = usd * batch.left[:, None] / all_work
    groups = Groups(
        np.column_stack([batch.left[:, None] / batch.alone, np.ones(count)]),
        batch.scale * batch.left / unit,
        workers,
        stage,
        np.column_stack([own, np.ones(count)]),
    )
    nothing = np.zeros(count)
    sifted = sift(groups, LevelObjective(np.ones(count), nothing, nothing, 0.0))
    shared = groups.at_stages(sifted.prices)[:, :types] * groups.held[:, None]
    return Lateness(sifted.shares[:, -1], (own + shared) / batch.left[:, None])
