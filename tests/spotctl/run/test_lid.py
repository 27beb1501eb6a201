"""A laptop whose lid is closed: everything stands still for longer than the leases of its machines,
and goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.samples import LONG_RUN
from tests.spotctl.launches import processes

COMMAND = """\
name: small
kind: command
run: |
  n=$(cat $SPOTCTL_CHECKPOINT_DIR/n || echo 0)
  while [ $n -lt 12 ]; do
    n=$((n + 1)); sleep 1; echo $n > $SPOTCTL_CHECKPOINT_DIR/.n; mv $SPOTCTL_CHECKPOINT_DIR/.n $SPOTCTL_CHECKPOINT_DIR/n
  done
hours: 30m
checkpoint: {path: saved, every: 1m}
resources: {clouds: [local], types: [c4.2xlarge]}
strategy: on-demand
local: {speed: 60}
"""
TRAINING = """\
name: small
kind: agileml
app: mf
args: {users: 200, items: 100, ratings: 4000, rank: 4, rate: 0.2}
stop: {clocks: 300}
resources: {clouds: [local], types: [c4.2xlarge], machines: 2..2, reliable: {machines: 1, type: m3.medium}}
strategy: on-demand
local: {speed: 60}
"""
CLOSED_SECONDS = 20
"""A third of an hour of the market: its leases last a quarter."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@LONG_RUN
@pytest.mark.parametrize(
    ("job", "has_begun"),
    [
        pytest.param(COMMAND, lambda state: state.work.checkpoint is not None, id="command"),
        pytest.param(
            TRAINING,
            lambda state: state.progress is not None and state.progress.clock > 20,
            id="training",
        ),
    ],
)
def test_a_job_goes_on_when_the_lid_is_opened(
    job: str, has_begun: Callable[[RunState], bool], tmp_path: Path
) -> None:
    home, path = tmp_path / "home", tmp_path / "job.yaml"
    path.write_text(job)
    launched = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from spotctl.cli.app import main; main()",
            "launch",
            path,
            "--yes",
            "--json",
        ],
        env={**os.environ, "SPOTCTL_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: has_begun(state(home)), launched)
        closed_at = time.monotonic()
        all_of_it = set[int]()
        # What is stopped starts nothing more; until then something may appear.
        while new := of_home(home) - all_of_it:
            for process in new:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
            all_of_it |= new
        time.sleep(CLOSED_SECONDS - (time.monotonic() - closed_at))
        for process in all_of_it:
            # Some had ended before they could be stopped.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        out, err = launched.communicate(timeout=240)
    finally:
        launched.kill()
        launched.communicate()
    assert launched.returncode == 0, err
    assert json.loads(out)["outcome"] == "done", err
    assert not processes(tmp_path)
    machines = state(home).machines.values()
    assert len(machines) > len(state(home).alive) == 0
    assert all(held.ended is not None and held.ended <= held.lease_until for held in machines)


def state(home: Path) -> RunState:
    with EventLog(home / "log.sqlite") as log:
        return latest_run(log, "small") or RunState()


def wait_for(happened: Callable[[], bool], launched: subprocess.Popen[str]) -> None:
    while not happened():
        assert launched.poll() is None, launched.communicate()
        time.sleep(0.2)


def of_home(home: Path) -> set[int]:
    """The processes that work for a home."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"SPOTCTL_HOME={home}".encode() in environment:
            found.add(int(entry.name))
    return found - {os.getpid()}
