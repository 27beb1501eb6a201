"""`LeaseTimes`: how long machines are leased, and when leases are renewed: for plans, forecasts and runs alike."""

from __future__ import annotations

from dataclasses import dataclass

from pricing_data.units import MINUTE, SECOND
from spotctl.files.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in microseconds of the provider's clock.

    A lease lasts `lease` and is renewed when less than `renew_before` of it is left. A machine is gone `teardown`
    after the end of its lease at the latest, and is ready for work `startup` after it was rented. Before a machine is
    returned, its work is warned `notice` ahead; a return at the end of a paid hour is requested as long before it.
    """

    lease: int = 15 * MINUTE
    renew_before: int = 10 * MINUTE
    teardown: int = 1 * MINUTE
    startup: int = 2 * MINUTE
    notice: int = 30 * SECOND

    @property
    def committed(self) -> int:
        """How long a new machine is paid for if it is not returned: its lease, and until it is gone."""
        return self.lease + self.teardown

    @classmethod
    def of(cls, spec: JobSpec) -> LeaseTimes:
        """The times of a job's runs: on a cloud, or on the local market, at the speed of its clock."""
        return cls.local(spec.local.speed) if spec.is_local else cls()

    @classmethod
    def local(cls, speed: float) -> LeaseTimes:
        """For a market whose clock runs `speed` times as fast as the processes of this computer."""
        second = round(speed * SECOND)
        return cls(lease=12 * second, renew_before=8 * second, teardown=second, startup=second, notice=second)
