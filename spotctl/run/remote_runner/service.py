"""The runner as a service of a rented machine: `python3 -m spotctl.run.remote_runner.service`,
started over ssh.

The service reads one JSON object (`RunnerStart`) from its standard input, so that the job's secrets
are in no file. The service goes on when the connection closes. A parent process restarts a runner
that was killed by a signal: all that a runner needs is in the log.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from agileml.runtime.ground import take_lock
from spotctl.agent.lease.self_deletion import system_variables
from spotctl.run.remote_runner.start import ROOT, RunnerStart

_LOG, _LOCK = f"{ROOT}/service.log", f"{ROOT}/lock"
_AGAIN_SECONDS, _MAX_STARTS = 2.0, 20


def main() -> int:
    """Starts the service unless it runs already; the line that this prints is for the launcher."""
    start = RunnerStart(**json.load(sys.stdin))
    try:
        lock = take_lock(Path(_LOCK), seconds=0.0)
    except BlockingIOError:
        print("running")  # noqa: T201
        return 0

    ready = os.pipe()
    if os.fork() == 0:
        os.close(ready[0])
        _become_service(start, ready[1])

    os.close(ready[1])
    os.close(lock)
    is_up = bool(os.read(ready[0], 1))
    print("running" if is_up else f"see {_LOG}")  # noqa: T201
    return 0 if is_up else 1


def _become_service(start: RunnerStart, ready: int) -> NoReturn:
    """Leaves the ssh session, and runs the runner in a process of its own, again and again while
    signals kill it.
    """
    code = 1
    try:
        os.setsid()
        with Path("/dev/null").open("rb") as nothing, Path(_LOG).open("ab") as log:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update({**system_variables(), **start.secrets})
        for _ in range(_MAX_STARTS):
            pid = os.fork()
            if pid == 0:
                _serve(start, ready)
            if ready >= 0:
                os.close(ready)
                ready = -1
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code >= 0:
                break
            time.sleep(_AGAIN_SECONDS)
    # A fork must not continue in its parent's code, whatever happens.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(max(code, 0))


def _serve(start: RunnerStart, ready: int) -> NoReturn:
    code = 1
    try:
        from spotctl.run.remote_runner.serving import serve

        def up() -> None:
            if ready >= 0:
                os.write(ready, b"1")
                os.close(ready)

        serve(start, up)
        code = 0
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
