"""A node of a job, in the job's folder. Its task comes in the environment: see `NODE` in
`container.payload`.

`prepare` copies the job's data to the machine and runs its setup. `become` copies the data, and
goes on as another command: the node of a training. `run` restores the checkpoint, runs the command
in a process group of its own, and stores its checkpoints. SIGTERM, which announces the machine's
end, is passed on to the command; when that has exited, its last checkpoint is stored, unless the
signal has cut short a file of it, and the node exits with `SAVED_AND_ENDED`. Otherwise the node
exits with the command's status, and a mark next to the checkpoints or outputs keeps a status of 0.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.kept import KeptPlaces
from spotctl.agent.checkpoints.local import (
    CHECKPOINT_VARIABLE,
    PLAN_VARIABLE,
    CheckpointPlanReader,
)
from spotctl.agent.checkpoints.stored import note_ended
from spotctl.agent.container.payload import OTHER_NODE, NodeTask
from spotctl.agent.container.podman import NO_CONTAINER, PROCESSES_VARIABLE, ensure_image, gpus
from spotctl.agent.container.processes import (
    BEHIND_SETUP,
    MARK,
    SHELL,
    RunningCommand,
    cut_short,
    marked,
)
from spotctl.agent.data.transfer import deliver, local_copy, patiently
from spotctl.agent.environment.built import BuiltEnvironment
from spotctl.agent.errors import AgentError, CannotBuild, ContainerRefused
from spotctl.agent.layout import LEASE_VARIABLE, RUN_VARIABLE, SETUP_VARIABLE
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.lease.lease_files import LeaseGrantor

CANNOT_TRANSFER = 74
"""The exit code if data, a checkpoint or outputs cannot be read or written: EX_IOERR."""

CANNOT_BUILD = 70
"""The exit code if the program's environment cannot be built: EX_SOFTWARE."""

EVERY_VARIABLE = "SPOTCTL_CHECKPOINT_EVERY"

_LOOK_SECONDS = 0.05
_STABLE_SECONDS = 0.5
"""A checkpoint that has not changed for this long is copied."""


_T = TypeVar("_T")


def prepare(task: NodeTask, environment: Mapping[str, str]) -> int:
    """Copies data, and pulls the image or runs the setup; returns the setup's exit code."""
    full = {**environment, **task.environment, **patiently(partial(_data, task), _say)}
    if task.container is not None:
        ensure_image(task.container, environment)
        return 0
    if task.packages is not None:
        built = BuiltEnvironment(task.packages, Path(task.cache), Path.cwd())
        built.prepare(full, _say)
        full |= built.variables(full)
    if not task.setup:
        return 0
    return subprocess.run(SHELL, env={**full, RUN_VARIABLE: task.setup}, check=False).returncode


class CommandNode:
    """One start of the job's command, with its checkpoints and outputs."""

    def __init__(self, task: NodeTask, environment: Mapping[str, str]) -> None:
        self._task, self._environment = task, environment
        self._machine = Path(environment[MARK])
        self._scratch = self._machine / "work" / task.name
        self._checkpoint, self._plan = self._scratch / "checkpoint", self._scratch / "plan.json"
        keep = () if task.checkpoint is None else task.checkpoint.keep
        self._kept = KeptPlaces(keep, Path.cwd(), self._machine)
        self._built: BuiltEnvironment | None = None
        if task.packages is not None:
            self._built = BuiltEnvironment(task.packages, Path(task.cache), Path.cwd())
        self._command: RunningCommand | None = None
        self._told_to_end = threading.Event()
        self._look_at = 0.0
        self._cut_short: list[Path] = []

    def run(self) -> int:
        """Runs the command to its end; returns the node's exit code."""
        signal.signal(signal.SIGTERM, self._on_term)
        try:
            return self._run()
        except AgentError as error:
            if not self._told_to_end.is_set():
                raise
            # The next machine tries again.
            _say(str(error))
            return SAVED_AND_ENDED
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _run(self) -> int:
        sync = self._checkpoint_sync()
        if sync is not None and (restored := self._patiently(sync.restore)) is not None:
            _say(f"resuming from checkpoint {restored.number}")
        if self._told_to_end.is_set():
            return SAVED_AND_ENDED

        self._command = RunningCommand(
            self._words(), Path.cwd(), self._variables(), None, self._machine
        )
        if self._told_to_end.is_set():
            self._command.terminate()

        code = self._until_end(self._command, sync)
        # Later signals change nothing: the command has ended by itself.
        was_told = self._told_to_end.is_set()
        self._command.end(0.0)
        if sync is not None and not self._cut_short:
            # A program that failed may have done so in the middle of a kept file.
            is_doubtful = self._kept.places and code != 0 and not was_told
            if not is_doubtful:
                _attempt(self._patiently, sync.last)
            elif time.monotonic() >= self._look_at:
                # What is as at the last look has not changed for long enough.
                _attempt(self._patiently, sync.look)

        if was_told:
            return SAVED_AND_ENDED

        if code != SAVED_AND_ENDED:
            self._patiently(self._deliver)
        if code == 0 and self._task.marks:
            note = partial(note_ended, self._task.marks, self._task.name, self._task.rank)
            _attempt(self._patiently, note)

        return code if code >= 0 else 128 - code

    def _patiently(self, act: Callable[[], _T]) -> _T:
        return patiently(act, _say, self._told_to_end.is_set)

    def _until_end(self, command: RunningCommand, sync: CheckpointSync | None) -> int:
        if self._built is not None and self._task.rank == 0:
            # For the next machine; the program need not wait for that.
            threading.Thread(target=self._built.keep, args=(_say,), daemon=True).start()
        while True:
            code = command.exit_code()
            # Processes of a program that was told to end may outlive its shell: they may still be
            # saving.
            others = (pid for pid, mark in marked() if mark == self._machine and pid != os.getpid())
            if code is not None and not (self._told_to_end.is_set() and any(others)):
                return code

            if sync is not None and not self._cut_short and time.monotonic() >= self._look_at:
                _attempt(sync.look)
                self._look_at = time.monotonic() + _STABLE_SECONDS
            time.sleep(_LOOK_SECONDS)

    def _on_term(self, *_: object) -> None:
        self._told_to_end.set()
        if self._command is not None:
            # A program that saves to one name and does not expect the signal would leave a part of
            # its file there.
            self._cut_short += cut_short(self._machine, self._checkpoint, *self._kept.paths())
            self._command.terminate()

    def _checkpoint_sync(self) -> CheckpointSync | None:
        policy, lease = self._task.checkpoint, self._environment.get(LEASE_VARIABLE)
        self._scratch.mkdir(parents=True, exist_ok=True)
        if policy is None:
            return None

        def write_seconds() -> float | None:
            progress = LeaseGrantor(Path(lease)).progress() if lease else None
            return None if progress is None else progress.saving_seconds

        return CheckpointSync(
            policy, self._task, self._checkpoint, self._plan, write_seconds, self._kept
        )

    def _words(self) -> list[str]:
        """The program, perhaps in its container."""
        task = self._task
        if task.container is None:
            return list(SHELL)
        words = [*BEHIND_SETUP, *SHELL] if task.setup else SHELL
        variables = (*task.container.variables, *task.environment, *task.data, *task.outputs)
        return replace(task.container, variables=variables, folders=(task.cache,)).runs(
            sys.executable, words
        )

    def _variables(self) -> dict[str, str]:
        """The program's environment."""
        processes = str(max(gpus(), 1))
        variables = {
            **self._environment,
            PROCESSES_VARIABLE: processes,
            **self._task.environment,
            **_data(self._task),
        }

        if self._built is not None:
            variables |= self._built.variables(variables)

        if self._task.checkpoint is not None:
            every = CheckpointPlanReader(self._plan).every()
            variables |= {
                CHECKPOINT_VARIABLE: str(self._checkpoint),
                PLAN_VARIABLE: str(self._plan),
            }
            variables |= {EVERY_VARIABLE: f"{every:.3f}"}

        for variable in self._task.outputs:
            folder = self._scratch / "outputs" / variable
            folder.mkdir(parents=True, exist_ok=True)
            variables[variable] = str(folder)

        texts = {RUN_VARIABLE: self._task.run, SETUP_VARIABLE: self._task.setup}
        return variables | {name: text for name, text in texts.items() if text}

    def _deliver(self) -> None:
        """Copies the first node's outputs to the job's destination, and other nodes' outputs to
        folders below that.
        """
        rank = self._task.rank
        for variable, target in self._task.outputs.items():
            destination = f"{target.rstrip('/')}/{OTHER_NODE.format(rank=rank)}" if rank else target
            deliver(self._scratch / "outputs" / variable, destination)


def _data(task: NodeTask) -> dict[str, str]:
    def copy(variable: str, location: str) -> str:
        near = task.near.get(variable, "")
        return str(
            local_copy(
                location, Path(task.cache), near=near, say=lambda line: _say(f"${variable}: {line}")
            )
        )

    return {variable: copy(variable, location) for variable, location in task.data.items()}


def _attempt(act: Callable[..., object], *given: object) -> None:
    """Acts, and reports a failure without raising it: the action is tried again later."""
    try:
        act(*given)
    except AgentError as error:
        _say(str(error))


def _say(line: str) -> None:
    sys.stderr.write(f"spotctl: {line}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Prepares the machine, runs the node, or becomes another command; returns the exit code.

    `arguments` are `prepare`, `run` or `become`, the task, and that command.
    """
    what, text, *command = arguments
    try:
        task = NodeTask.from_json(text)
        if what == "become":
            # The command replaces this process, and finds the data in its environment.
            data = patiently(partial(_data, task), _say)
            os.execvpe(command[0], command, {**os.environ, **data})  # noqa: S606
        return (
            prepare(task, os.environ) if what == "prepare" else CommandNode(task, os.environ).run()
        )
    except AgentError as error:
        _say(str(error))
        codes = {ContainerRefused: NO_CONTAINER, CannotBuild: CANNOT_BUILD}
        return codes.get(type(error), CANNOT_TRANSFER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
