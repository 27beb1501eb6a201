"""Why a run cannot start or continue."""

from spotctl.home.errors import SpotctlError


class BrokenLog(SpotctlError):
    """The event log contains what this version cannot read."""


class LogFailed(SpotctlError):
    """The event log cannot be read or written; without it nothing may be changed."""


class AlreadyRunning(SpotctlError):
    """The job has a run already."""
