"""What keeps a run from being run; the message says what to do."""

from __future__ import annotations

from spotctl.errors import SpotctlError


class BrokenLog(SpotctlError):
    """The event log holds what this version cannot read."""


class LogFailed(SpotctlError):
    """The event log cannot be written or read: without it nothing may be changed."""


class AlreadyRunning(SpotctlError):
    """A job of this name runs already."""
