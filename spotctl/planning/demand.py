"""`Demand`: a job as the division of machines sees it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from spotctl.files.job.spec import Objective
from spotctl.planning.offers import MachineKind
from spotctl.planning.work import JobLength


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A job that asks for machines: nu by kind (0 where it may not run), fewest and most machines, and its limits.

    `hours_left` is the time to the deadline minus start-up. `reference_nu` is the work per hour of all machines on the
    kind that is cheapest per unit of work, and converts an amount given in hours. A job that `roams` may move between
    regions. `reserved` are the machines by kind that reservations hold for it, on top of all quotas; empty if none do.
    `lasts_hours` is the expected time from its launch to its end, once it was forecast.
    """

    name: str
    objective: Objective
    nu: FloatArray
    least: int
    most: int
    work: JobLength
    reference_nu: float
    hours_left: float
    budget_usd: float | None
    gang: bool = False
    roams: bool = False
    reserved: tuple[int, ...] = ()
    lasts_hours: float | None = None

    @property
    def amount(self) -> float:
        """The work in machine-hours times nu."""
        return self.work.amount(self.reference_nu)

    @property
    def hurries(self) -> bool:
        """Whether the deadline constrains the plan; never if the job's length is unknown."""
        return np.isfinite(self.hours_left) and not self.work.assumed

    @property
    def limited_by_budget(self) -> bool:
        """Whether the budget decides how fast the job's machines may be."""
        return (
            self.objective is Objective.MAKESPAN_WITHIN_BUDGET
            and self.budget_usd is not None
            and not self.work.assumed
            and not self.work.timed
        )


def places(kinds: Sequence[MachineKind]) -> list[IntArray]:
    """The columns of each region; all machines of a job are in one, because they communicate with each other."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for j, kind in enumerate(kinds):
        grouped.setdefault((kind.cloud, kind.region), []).append(j)
    return [np.array(columns) for columns in grouped.values()]
