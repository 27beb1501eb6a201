"""The process that forks the others, and what is left when it or its parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agileml.core.events import Iteration
from agileml.engines.local import LocalEngine
from agileml.errors import AgileMLError
from tests.agileml.engines.jobs import Timetable, processes
from tests.agileml.engines.local.test_fleet_ends import RUN, job
from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.usefixtures("left_behind"), LOCAL_FAULT]


def test_a_killed_fork_server_takes_everything_with_it(tmp_path: Path, left_behind: Path) -> None:
    def kill_server(iteration: Iteration) -> None:
        if iteration.clock == 2:
            # The fork server is this process's own child; the nodes are the fork server's.
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            (server,) = [pid for pid in children if pid in processes(str(left_behind))]
            os.kill(int(server), signal.SIGKILL)

    with pytest.raises(AgileMLError, match=r"process that runs the job's machines is gone"):
        LocalEngine().run(job(tmp_path), Timetable({}), kill_server)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_whose_parent_dies_leaves_nothing(
    tmp_path: Path, left_behind: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(left_behind)},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        assert processes(str(left_behind))
        parent.send_signal(number)
        assert parent.wait() != 0
        # However long a busy computer takes: the test's time limit is the only one.
        while processes(str(left_behind)) or any(left_behind.iterdir()):
            time.sleep(0.01)
