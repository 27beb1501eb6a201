"""`Job`: a job to be planned, as a frozen value."""

from dataclasses import dataclass

from agileml.pipeline.profile.model_profile import ModelProfile
from pricing_data.units import NANOS_PER_DOLLAR, SECOND
from spotctl.files.job.reservations import Reservation
from spotctl.files.job.spec import JobSpec
from spotctl.planning.work import SPECIFIED


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
