"""The end of a lease in a job."""

from __future__ import annotations

from spotctl.agent import (
    LeaseEnded,
)
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED


def test_an_uncaught_lease_end_exits_without_a_traceback() -> None:
    ended = LeaseEnded("lease 1 ends")
    assert isinstance(ended, SystemExit)
    assert (ended.code, str(ended)) == (SAVED_AND_ENDED, "lease 1 ends")
