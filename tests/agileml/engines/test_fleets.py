"""The three fleets pass the suite: simulated machines, processes of this computer, machines of
somebody else.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agileml.core.events import Iteration
from agileml.engines.attached import AttachedJob
from agileml.engines.chaos import (
    Act,
    Evict,
    Join,
    KillController,
    RunningMachine,
    Script,
)
from agileml.engines.local import LocalEngine
from agileml.job import Trained, TrainingJob
from agileml.runtime.folders import SECRET_VARIABLE
from agileml.runtime.node_process import NOT_ADMITTED
from agileml.runtime.prepared_job import PreparedJob, shape_of
from tests.agileml.engines.fleet_suite import FleetSuite, Log, ReplacingFleetSuite
from tests.agileml.engines.forked_node import ForkedNode, start_fork_server
from tests.agileml.engines.jobs import processes

pytestmark = [pytest.mark.usefixtures("left_behind"), pytest.mark.timeout(600)]

SECRET = b"0123456789abcdef0123456789abcdef"
LEAVE_SECONDS = 120.0


@pytest.mark.sampled(6)
class TestLocal(ReplacingFleetSuite):
    @pytest.fixture
    def play(self) -> Callable[[TrainingJob, Script, Log], Trained]:
        return lambda job, script, log: LocalEngine().run(job, script, log.append)


@pytest.fixture(scope="module")
def fork_server() -> None:
    start_fork_server()


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("fork_server")
class TestAttached(FleetSuite):
    @pytest.fixture
    def play(self, left_behind: Path) -> Callable[[TrainingJob, Script, Log], Trained]:
        def play(job: TrainingJob, script: Script, log: Log) -> Trained:
            folder = left_behind / "job"
            folder.mkdir()
            caller = Caller(job, folder, script, log)
            try:
                return caller.run()
            finally:
                caller.close()
                shutil.rmtree(folder)

        return play


class Caller:
    """Somebody who starts machines for an attached job, and takes them away."""

    def __init__(self, job: TrainingJob, folder: Path, script: Script, log: Log) -> None:
        self._folder, self._script = folder, script
        self._clock = 0
        self._log = log
        self._began = time.monotonic()
        self._job = AttachedJob(PreparedJob(job, shape_of(job)), folder, SECRET, self._note)
        self._nodes: dict[str, ForkedNode] = {}
        self._machines: dict[str, RunningMachine] = {}
        self._deadlines: dict[str, float] = {}
        self._started = 0
        self._apply(Join(job.reliable, reliable=True))
        self._apply(Join(job.transient))

    def _note(self, iteration: Iteration) -> None:
        self._clock = iteration.clock
        self._log.append(iteration)
        # At once, not after the turn: on a fast computer the job may be done by then.
        self._apply_script()

    def _apply_script(self) -> None:
        for act in self._script.due(
            self._clock, time.monotonic() - self._began, list(self._machines.values())
        ):
            self._apply(act)

    def run(self) -> Trained:
        while (trained := self._job.turn(0.01)) is None:
            now = time.monotonic()
            for name in [name for name, node in self._nodes.items() if node.ended]:
                self._remove(name)
            for name in [name for name, at in self._deadlines.items() if at <= now]:
                self._remove(name)
            self._apply_script()
        # The script may have killed the controller before it told the nodes that the job is over.
        self._job.release(LEAVE_SECONDS)
        refused = any(event.startswith("refused") for one in self._log for event in one.events)
        for node in self._nodes.values():
            # A node that was refused may take longer to exit than the job takes to end.
            assert node.wait() in ((0, NOT_ADMITTED) if refused else (0,))
        return trained

    def close(self) -> None:
        self._job.close()
        for node in self._nodes.values():
            node.kill()

    def _apply(self, act: Act) -> None:
        match act:
            case Join():
                for _ in range(act.count):
                    self._start(
                        f"{'r' if act.reliable else 't'}{self._started}", reliable=act.reliable
                    )
            case Evict(seconds=None):
                for name in set(act.names) & self._nodes.keys():
                    self._remove(name)
            case Evict():
                assert act.seconds is not None
                for name in set(act.names) & self._nodes.keys():
                    self._machines[name] = RunningMachine(
                        name, self._machines[name].reliable, warned=True
                    )
                    self._deadlines[name] = time.monotonic() + act.seconds
                    self._job.warn(name, act.seconds)
            case KillController():
                # Its caller cannot kill it: it is not one of the machines. There is none while it
                # is being restarted.
                for pid in processes(str(self._folder)):
                    if Path(f"/proc/{pid}/fd/1").resolve() == self._folder / "controller.out":
                        os.kill(int(pid), signal.SIGKILL)

    def _start(self, name: str, *, reliable: bool) -> None:
        self._started += 1
        words = [str(self._folder), "--name-in", "NODE_NAME", *(["--reliable"] if reliable else [])]
        environment = {**os.environ, "NODE_NAME": name, SECRET_VARIABLE: SECRET.hex()}
        self._nodes[name] = ForkedNode(words, environment)
        self._machines[name] = RunningMachine(name, reliable, warned=False)

    def _remove(self, name: str) -> None:
        self._nodes.pop(name).kill()
        del self._machines[name]
        self._deadlines.pop(name, None)
        self._job.lose(name)
