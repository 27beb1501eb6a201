"""Errors of a runner on a rented machine."""

from spotctl.home.errors import SpotctlError


class Superseded(SpotctlError):
    """Another runner has taken over the run: this one may change nothing any more."""


class RunnerLost(SpotctlError):
    """The runner on a rented machine does not answer, or has failed."""
