"""Jobs that cannot be planned; the message says what it would take."""

from __future__ import annotations

from spotctl.errors import SpotctlError


class NotInTime(SpotctlError):
    """Nothing that may be rented does the job, or none of it in time."""


class OverBudget(SpotctlError):
    """The job costs more than it may."""
