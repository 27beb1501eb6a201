"""`Job`: a job to be planned, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.pipeline.profile.model_profile import ModelProfile
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.spec import JobSpec
from spotctl.planning.work import SPECIFIED


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be planned: its deadline as a moment, and the user's or the measured estimate of its length in hours.

    `place` is the cloud and region that a job which already runs must stay in; `hours_from` says where `hours` come
    from. `profiles` describe the model that is split over the machines' devices.
    """

    spec: JobSpec
    deadline: int | None = None
    hours: float | None = None
    place: tuple[str, str] | None = None
    hours_from: str = SPECIFIED
    profiles: tuple[ModelProfile, ...] = ()

    @property
    def budget_usd(self) -> float | None:
        """The job's budget in dollars; None without one."""
        return None if self.spec.budget is None else self.spec.budget / NANOS_PER_DOLLAR

    @property
    def value_of_time_usd(self) -> float | None:
        """Dollars that an hour less of run time is worth; None if the job does not say."""
        return None if self.spec.value_of_time is None else self.spec.value_of_time / NANOS_PER_DOLLAR
