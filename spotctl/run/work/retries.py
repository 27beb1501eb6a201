"""How often a command job is tried again, by the class of its failure. Pure."""

from collections.abc import Mapping

from spotctl.agent.job_lease import SAVED_AND_ENDED

SETUP = "setup"
_DEFAULT_RETRIES = {SETUP: 1, str(SAVED_AND_ENDED): 4}
"""A setup that fails on one machine may be the machine's fault, on two it is not. Exiting to be moved is no failure
unless a command does so again and again."""


def allowed(retries: Mapping[str, int], failure: str | int) -> int:
    """How often a job is tried again after this failure: `setup`, or the status with which the command exited."""
    return retries.get(str(failure), _DEFAULT_RETRIES.get(str(failure), 0))
