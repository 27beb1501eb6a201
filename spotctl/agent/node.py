"""A node of a command job: `python -m spotctl.agent.node prepare|run TASK`, in the job's folder on its machine.

`prepare` brings the job's data and runs its setup. `run` brings back the checkpoint, runs the command in a group of its
own, and carries its checkpoints away. SIGTERM, which says that the machine goes, is handed to the command; when it has
ended, its last checkpoint is carried, and the node ends with `SAVED_AND_ENDED`. Otherwise it ends as the command did.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from spotctl.agent.checkpoint_sync import CheckpointSync
from spotctl.agent.command import RunningCommand
from spotctl.agent.data_transfer import deliver, staged
from spotctl.agent.errors import AgentError
from spotctl.agent.interval import PLAN_VARIABLE, PlanReader
from spotctl.agent.iterator import SAVED_AND_ENDED
from spotctl.agent.lease import FOLDER_VARIABLE, LeaseGiver
from spotctl.agent.processes import MARK, marked
from spotctl.agent.task import OTHER_NODE, Task

CANNOT = 74
"""The exit code where data, a checkpoint or outputs cannot be read or written: EX_IOERR."""

CHECKPOINT_VARIABLE, EVERY_VARIABLE = "SPOTCTL_CHECKPOINT_DIR", "SPOTCTL_CHECKPOINT_EVERY"

_LOOK_SECONDS = 0.05
_CARRY_SECONDS = 0.5
"""A checkpoint that stands still for so long is carried."""


def prepare(task: Task, environment: Mapping[str, str]) -> int:
    """Brings data and runs the setup; its exit code."""
    full = {**environment, **task.environment, **_data(task)}
    return subprocess.run(["/bin/sh", "-c", task.setup], env=full, check=False).returncode if task.setup else 0


class Node:
    """One start of the job's command."""

    def __init__(self, task: Task, environment: Mapping[str, str]) -> None:
        self._task, self._environment = task, environment
        self._machine = Path(environment[MARK])
        self._scratch = self._machine / "work" / task.name
        self._command: RunningCommand | None = None
        self._asked = threading.Event()

    def run(self) -> int:
        """Until the command has ended."""
        signal.signal(signal.SIGTERM, self._on_term)
        try:
            return self._run()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _run(self) -> int:
        keeper = self._keeper()
        if keeper is not None and (place := keeper.restore()) is not None:
            _say(f"goes on from checkpoint {place.step}")
        if self._asked.is_set():
            return SAVED_AND_ENDED
        self._command = RunningCommand(
            ["/bin/sh", "-c", self._task.run], Path.cwd(), self._variables(), None, self._machine
        )
        if self._asked.is_set():
            self._command.terminate()
        code = self._until_its_end(self._command, keeper)
        self._command.end(0.0)
        if keeper is not None:
            _saying(keeper.last)
        if self._asked.is_set():
            return SAVED_AND_ENDED
        if code != SAVED_AND_ENDED:
            self._deliver()
        return code if code >= 0 else 128 - code

    def _until_its_end(self, command: RunningCommand, keeper: CheckpointSync | None) -> int:
        carry_at = 0.0
        while (code := command.exit_code()) is None or (self._asked.is_set() and self._others_run()):
            if keeper is not None and time.monotonic() >= carry_at:
                _saying(keeper.look)
                carry_at = time.monotonic() + _CARRY_SECONDS
            time.sleep(_LOOK_SECONDS)
        return code

    def _others_run(self) -> bool:
        """Whether the shell has ended before what it started: that may still be saving."""
        return any(mark == self._machine and pid != os.getpid() for pid, mark in marked())

    def _on_term(self, *_: object) -> None:
        self._asked.set()
        if self._command is not None:
            self._command.terminate()

    def _keeper(self) -> CheckpointSync | None:
        keeping, lease = self._task.keeping, self._environment.get(FOLDER_VARIABLE)
        self._scratch.mkdir(parents=True, exist_ok=True)
        if keeping is None:
            return None

        def told() -> float | None:
            progress = LeaseGiver(Path(lease)).progress() if lease else None
            return None if progress is None else progress.saving_seconds

        return CheckpointSync(keeping, self._task, self._checkpoint, self._plan, told)

    @property
    def _checkpoint(self) -> Path:
        return self._scratch / "checkpoint"

    @property
    def _plan(self) -> Path:
        return self._scratch / "plan.json"

    def _variables(self) -> dict[str, str]:
        """What the program is told."""
        found = {**self._environment, **self._task.environment, **_data(self._task)}
        if self._task.keeping is not None:
            every = PlanReader(self._plan).every()
            found |= {CHECKPOINT_VARIABLE: str(self._checkpoint), PLAN_VARIABLE: str(self._plan)}
            found |= {EVERY_VARIABLE: f"{every:.3f}"}
        for variable in self._task.outputs:
            folder = self._scratch / "outputs" / variable
            folder.mkdir(parents=True, exist_ok=True)
            found[variable] = str(folder)
        return found

    def _deliver(self) -> None:
        """The first node's outputs go where the job says, those of others into folders of theirs below it."""
        rank = self._task.rank
        for variable, target in self._task.outputs.items():
            place = Path(target) / OTHER_NODE.format(rank=rank) if rank else Path(target)
            deliver(self._scratch / "outputs" / variable, place)


def _data(task: Task) -> dict[str, str]:
    return {variable: str(staged(location, Path(task.cache))) for variable, location in task.data.items()}


def _saying(act: Callable[[], object]) -> None:
    """Does what may fail now and be done later, and says so."""
    try:
        act()
    except AgentError as error:
        _say(str(error))


def _say(line: str) -> None:
    sys.stderr.write(f"spotctl: {line}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Prepares the machine, or runs the node."""
    what, text = arguments
    try:
        task = Task.from_json(text)
        return prepare(task, os.environ) if what == "prepare" else Node(task, os.environ).run()
    except AgentError as error:
        _say(str(error))
        return CANNOT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
