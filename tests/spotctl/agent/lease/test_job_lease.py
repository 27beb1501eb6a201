"""The end of a lease in a job."""

from __future__ import annotations

import signal
from pathlib import Path

from spotctl.agent import (
    LeaseEnded,
)
from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED, JobLease
from spotctl.agent.lease.lease_files import LeaseAct, LeaseGrantor, LeaseHolder


def test_an_uncaught_lease_end_exits_without_a_traceback() -> None:
    ended = LeaseEnded("lease 1 ends")
    assert isinstance(ended, SystemExit)
    assert (ended.code, str(ended)) == (SAVED_AND_ENDED, "lease 1 ends")


def test_sigterm_makes_the_next_decision_end_until_the_loop_is_over(tmp_path: Path) -> None:
    LeaseGrantor(tmp_path).begin(1000.0)
    # Other tests of this process may have set a handler.
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lease = JobLease(LeaseHolder(tmp_path), save_every_seconds=1e9)
    try:
        assert lease.decision().act is LeaseAct.GO
        signal.raise_signal(signal.SIGTERM)
        decision = lease.decision()
        assert (decision.act, decision.reason) == (
            LeaseAct.END,
            "SIGTERM: the machine is about to end",
        )
        lease.report_end(decision, TrainingPosition(0, 0, 3))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
