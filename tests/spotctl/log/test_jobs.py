"""A job runs once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.log.jobs import JobLock, is_running
from spotctl.log.outcomes import AlreadyRunning

HOLD = """
import sys, time
from pathlib import Path
from spotctl.log.jobs import JobLock
lock = JobLock(Path(sys.argv[1]), "job")
print("held", flush=True)
time.sleep(60)
"""


def test_a_job_runs_once_and_its_lock_ends_with_its_process(tmp_path: Path) -> None:
    assert not is_running(tmp_path, "job")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_running(tmp_path, "job")
        with pytest.raises(
            AlreadyRunning, match=f"job job is already running as process {holder.pid}"
        ):
            JobLock(tmp_path, "job")
        with JobLock(tmp_path, "other"):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert not is_running(tmp_path, "job")
    with JobLock(tmp_path, "job"):
        assert is_running(tmp_path, "job")
