"""How a run can end: the values of `outcome` in the event log and in every answer."""

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
