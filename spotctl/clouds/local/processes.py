"""The processes of local machines: one hypervisor for each folder, known alive by the folder's
lock, never left behind.

The process that starts a machine locks its folder first and passes the locked descriptor on. So at
every moment, and whichever process is killed, the lock is held exactly as long as the machine runs
or is being started.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from agileml.runtime.ground import is_locked
from spotctl.agent.container.processes import MARK, environment_of, kill, kill_marked, marked
from spotctl.clouds.link import link_secret
from spotctl.clouds.local.folders import MachineFolder
from spotctl.clouds.local.machine_file import FAILED, RETURN_SIGNAL, ReplayedEnd
from spotctl.clouds.provider import Resource
from spotctl.home.paths import PACKAGE

TAGS_VARIABLE = "SPOTCTL_TAGS"
"""Carries a request's tags to all processes of its machines, so that they can be found when their
folder is gone."""

_CODE = PACKAGE.parent
_HYPERVISOR = "spotctl.clouds.local.hypervisor"
_OBSERVER_SECONDS = 0.5


def start(
    machines: Sequence[MachineFolder], clock: Path, secrets: Mapping[str, str], key: bytes
) -> None:
    """Starts machines that never ran, and waits until all are up or have failed. `key`: see
    `link_key`.
    """
    with ExitStack() as locks:
        waiting, held = list[tuple[int, str, str]](), list[int]()
        for machine in machines:
            if machine.is_up:
                continue
            lock = locks.enter_context(_locked(machine))
            if lock is not None and machine.ended is None and not machine.is_up:
                secret = link_secret(key, machine.id).hex()
                waiting.append((lock, str(machine.folder), secret))
                held.append(lock)
        if not waiting:
            return

        allocation = machines[0].allocation
        tags = json.dumps(dict(allocation.request.tags))
        named = {MARK: str(allocation.folder), TAGS_VARIABLE: tags}
        # On the standard input: other users see arguments, and secrets are in no file.
        given = json.dumps({"clock": str(clock), "machines": waiting}).encode()
        with (allocation.folder / "agent.log").open("ab") as log:
            # Without site packages, and from the folder of our code: a hypervisor needs only the
            # standard library and our own modules, and nothing in the user's environment can get in
            # the way.
            subprocess.run(
                [sys.executable, "-E", "-S", "-m", _HYPERVISOR],
                cwd=_CODE,
                env={**os.environ, **secrets, **named},
                pass_fds=held,
                start_new_session=True,
                input=given,
                stdout=log,
                stderr=log,
                check=False,
            )


def signal_return(machine: MachineFolder) -> bool:
    """Tells a machine's hypervisor by a signal to end the machine; False if the hypervisor cannot
    be reached.
    """
    if not is_locked(machine.folder / "lock"):
        return True
    pid = machine.number("pid")
    if pid is not None:
        kill(pid, RETURN_SIGNAL)
    return pid is not None


def clean_up(machine: MachineFolder, now: int) -> ReplayedEnd | None:
    """Kills the processes that a dead machine left, and records and returns its end; None if it was
    never started.
    """
    with _locked(machine) as lock:
        if lock is None or machine.ended is not None:
            return machine.ended
        end = machine.end_by(now)
        if end is None and not machine.is_up:
            return None
        kill_marked(machine.folder)
        end = end or ReplayedEnd(max(now, machine.plan.started), FAILED)
        # On a full disk the next caller records the end: callers must see now that the machine is
        # gone.
        with suppress(OSError):
            machine.record_end(end)
        return end


def fail(machine: MachineFolder, now: int) -> None:
    """Records that a machine could not be started, unless the machine runs."""
    with _locked(machine) as lock:
        if lock is not None and machine.ended is None:
            kill_marked(machine.folder)
            machine.record_end(ReplayedEnd(max(now, machine.plan.started), FAILED))


def stray_processes(machines: Path) -> Iterator[Resource]:
    """Processes that were started for machines under this folder which do not run any more, or
    whose folder is gone.
    """
    for pid, mark in marked():
        if mark.is_relative_to(machines) and mark != machines:
            owners = [mark] if mark.parent != machines else [mark, *mark.glob("[0-9]*")]
            if any(is_locked(owner / "lock") for owner in owners):
                continue

            tags: dict[str, str] = {}
            with suppress(ValueError):  # someone may have set it to anything
                values = json.loads(environment_of(pid).get(TAGS_VARIABLE, "{}"))
                if isinstance(values, dict):
                    tags = {str(name): str(value) for name, value in values.items()}
            yield Resource("process", str(pid), tags, str(mark))


@contextmanager
def _locked(machine: MachineFolder) -> Iterator[int | None]:
    """The descriptor of a machine's lock; None if its processes hold it, or are about to."""
    descriptor = os.open(machine.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    # For a moment, another process may only be checking whether the lock is held.
    give_up = time.monotonic() + _OBSERVER_SECONDS
    is_ours = False
    try:
        while not is_ours:
            is_last = time.monotonic() > give_up
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            except BlockingIOError:
                if is_last:
                    break
                time.sleep(_OBSERVER_SECONDS / 100)
        yield descriptor if is_ours else None
    finally:
        os.close(descriptor)
