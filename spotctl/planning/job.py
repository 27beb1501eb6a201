"""A job to be planned, as frozen values: the `Job` itself, and its `Demand`, as the division of machines sees it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.gavel.arrays import FloatArray, IntArray
from pricing_data.units import NANOS_PER_DOLLAR, SECOND
from spotctl.files.job.reservations import Reservation
from spotctl.files.job.spec import JobSpec, Objective
from spotctl.planning.offers import MachineKind
from spotctl.planning.work import SPECIFIED, JobLength


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be planned: its deadline as a moment, and the user's or the measured estimate of its length in hours.

    `place` is the cloud and region that a job which already runs must stay in; `hours_from` says where `hours` come
    from. `profiles` describe the model that is split over the machines' devices. `save_seconds` is what a checkpoint
    took in earlier runs. `reserved` is the job's part of reservations that other jobs name, too; None: all of them.
    """

    spec: JobSpec
    deadline: int | None = None
    hours: float | None = None
    place: tuple[str, str] | None = None
    hours_from: str = SPECIFIED
    profiles: tuple[ModelProfile, ...] = ()
    save_seconds: float | None = None
    reserved: tuple[Reservation, ...] | None = None

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations that the job may use, with the machines that it may use of each."""
        return self.spec.resources.reservations if self.reserved is None else self.reserved

    @property
    def budget_usd(self) -> float | None:
        """The job's budget in dollars; None without one."""
        return None if self.spec.budget is None else self.spec.budget / NANOS_PER_DOLLAR

    @property
    def save_time(self) -> int | None:
        """How long a checkpoint took in earlier runs, in microseconds of the market's clock; None if unknown."""
        if self.save_seconds is None:
            return None
        return round(self.save_seconds * SECOND * (self.spec.local.speed if self.spec.is_local else 1.0))

    @property
    def value_of_time_usd(self) -> float | None:
        """Dollars that an hour less of run time is worth; None if the job does not say."""
        return None if self.spec.value_of_time is None else self.spec.value_of_time / NANOS_PER_DOLLAR


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
