"""A command of a person's on a machine of a run: which machine is meant, and its end passed on."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.units import format_time
from spotctl.errors import BadRequest
from spotctl.files.job.reader import restored
from spotctl.machines.base import NotFound, TakesCommands
from spotctl.paths import Paths
from spotctl.runlog.state import RunState
from spotctl.runlog.statuses import latest_run
from spotctl.runlog.store import EventLog
from spotctl.wiring import local_provider

if TYPE_CHECKING:
    from spotctl.config import Settings

CANNOT_START = 127
"""What a shell says of a command that is not there."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A machine of a run that a command can be run on."""

    machine: str
    provider: TakesCommands


@dataclass(frozen=True, slots=True)
class Answered:
    """What a command ended with, and what it printed where that was asked for."""

    code: int
    out: str = ""
    err: str = ""


def reach(job: str, node: str, settings: Settings) -> Reached:
    """The machine of a job that `node` means: its place among those that live, from 0, or its id; `""`: the first."""
    paths = Paths(settings.home)
    if not paths.log.exists():
        raise BadRequest(f"no job named {job!r} was launched (spotctl launch FILE)")
    with closing(EventLog(paths.log)) as log:
        state = latest_run(log, job)
    if state is None or state.began is None:
        raise BadRequest(f"no job named {job!r} was launched (spotctl status shows those that were)")
    if state.ended is not None:
        raise BadRequest(f"run {state.run} of job {job} is over ({state.ended.outcome}); none of its machines runs")
    return Reached(_machine(state, job, node or "0"), local_provider(settings, restored(state.began.spec, paths.home)))


def _machine(state: RunState, job: str, node: str) -> str:
    living = [held.id for held in state.alive]
    if not living:
        raise BadRequest(f"job {job} has no machine at this moment (spotctl status {job} shows when one comes)")
    if node in living:
        return node
    held = state.machines.get(node)
    if held is not None and held.ended is not None:
        raise BadRequest(f"machine {node} of job {job} is gone since {format_time(held.ended)}: {held.end_reason}")
    if node.isdecimal() and int(node) < len(living):
        return living[int(node)]
    raise BadRequest(
        f"job {job} has no machine {node!r}: --node takes 0 to {len(living) - 1}, in the order of spotctl status"
        f" --json, or an id such as {living[0]}"
    )


def run(reached: Reached, command: Sequence[str], *, keep: bool = False) -> Answered:
    """Runs a command on a machine, with this process's streams or, to `keep` what it prints, without."""
    chosen = reached.provider.invocation(reached.machine, command)
    pipe = subprocess.PIPE if keep else None
    try:
        process = subprocess.Popen(
            chosen.words,
            env=chosen.environment,
            cwd=chosen.folder,
            stdin=subprocess.DEVNULL if keep else None,
            stdout=pipe,
            stderr=pipe,
        )
    except OSError as error:
        return Answered(CANNOT_START, err=f"{command[0]}: {error.strerror or error}")
    with _interrupts_are_the_commands():
        _end_if_gone(reached, process, command)
        out, err = process.communicate()
    code = process.returncode
    # A shell's way of telling the signal that ended a command.
    return Answered(128 - code if code < 0 else code, _text(out), _text(err))


def _end_if_gone(reached: Reached, process: subprocess.Popen[bytes], command: Sequence[str]) -> None:
    """A machine ends what it finds when it ends; it may have looked just before the command was there."""
    try:
        reached.provider.invocation(reached.machine, command)
    except NotFound:
        process.kill()


@contextmanager
def _interrupts_are_the_commands() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _text(printed: bytes | None) -> str:
    return "" if printed is None else printed.decode(errors="replace")
