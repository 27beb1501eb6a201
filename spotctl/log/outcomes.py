"""How a run can end (the values of `outcome` in the event log and in every answer), and why it
cannot start or continue."""

from spotctl.home.errors import SpotctlError

DONE, FAILED, STOPPED, NO_CAPACITY, NOT_IN_TIME, BUDGET, NOT_PERMITTED = (
    "done",
    "failed",
    "stopped",
    "no capacity",
    "not in time",
    "budget reached",
    "not permitted",
)

WITHDRAWN = "withdrawn before it began; nothing was rented"
"""Why a job has no run, if it was stopped while it waited for its turn."""


class BrokenLog(SpotctlError):
    """The event log contains what this version cannot read."""


class LogFailed(SpotctlError):
    """The event log cannot be read or written; without it nothing may be changed."""


class AlreadyRunning(SpotctlError):
    """The job has a run already."""
