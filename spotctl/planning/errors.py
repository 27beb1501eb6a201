"""Jobs that cannot be planned; the message says what would help."""

from spotctl.home.errors import SpotctlError


class NotInTime(SpotctlError):
    """No machines that the job may rent can do it, or finish it by its deadline."""


class OverBudget(SpotctlError):
    """The job costs more than its budget."""
