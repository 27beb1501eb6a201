"""The processes of local machines: started once for each folder, known alive by the folder's lock, never left behind.

Whoever starts a machine locks its folder first and hands the locked descriptor to the process. So at every moment, and
whoever is killed, the lock is held exactly as long as the machine's process lives or is being started.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import spotctl
from spotctl.agent.lease import FOLDER_VARIABLE
from spotctl.agent.planned_ending import FAILED, Ending, ending
from spotctl.agent.processes import MARK, at_work, environment_of, folder_of, kill_marked, marked
from spotctl.machines.local.folders import Place

_CODE = Path(spotctl.__file__).parents[1]
_MACHINE = "spotctl.agent.machine"
_LOOKERS_SECONDS = 0.5


def start(places: Sequence[Place], clock: Path, secrets: Mapping[str, str]) -> None:
    """Starts those that do not run and never ended, and waits until they are up."""
    with ExitStack() as locks:
        waiting = [
            (lock, place)
            for place in places
            if not place.is_up
            and (lock := locks.enter_context(_locked(place))) is not None
            and place.ended is None
            and not place.is_up
        ]
        if not waiting:
            return
        allocation = waiting[0][1].folder.parent
        with (allocation / "agent.log").open("ab") as log:
            # Without site packages, and from the folder of our code: the standard library and the agent are all it
            # needs, and nothing of the user's can get in its way.
            subprocess.run(
                [
                    *(sys.executable, "-E", "-S", "-m", _MACHINE, str(clock)),
                    *(f"{lock}:{place.folder}" for lock, place in waiting),
                ],
                cwd=_CODE,
                env={**os.environ, **secrets, MARK: str(allocation)},
                pass_fds=[lock for lock, _ in waiting],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )


def is_alive(place: Place) -> bool:
    """Whether a machine's process lives."""
    return _is_held(place.folder)


def bury(place: Place, now: int) -> None:
    """Ends what a dead machine has left and records how it ended; one that was never started waits for its end."""
    with _locked(place) as lock:
        if lock is None or place.ended is not None:
            return
        end = ending(place.fate, place.lease_until, place.returned_at, now)
        if end is None and not place.is_up:
            return
        kill_marked(place.folder)
        place.end(end or Ending(max(now, place.fate.started), FAILED))


def fail(place: Place, now: int) -> None:
    """Records that a machine could not be started, if it does not run."""
    with _locked(place) as lock:
        if lock is not None and place.ended is None:
            kill_marked(place.folder)
            place.end(Ending(max(now, place.fate.started), FAILED))


def surroundings(place: Place) -> tuple[dict[str, str], str]:
    """The environment and the folder in which a machine's work runs; before it does, those that it is begun with."""
    own = place.folder / "work"
    own.mkdir(exist_ok=True)
    pid = at_work(place.folder)
    seen = environment_of(pid or place.pid or os.getpid())
    environment = {**(seen or os.environ), MARK: str(place.folder), FOLDER_VARIABLE: str(place.folder / "job")}
    return environment, (folder_of(pid) if pid else None) or (place.given or {}).get("folder") or str(own)


def strays(machines: Path) -> Iterator[tuple[int, Path]]:
    """Processes that were started for machines under this folder of which none lives any more, or is not there."""
    for pid, mark in marked():
        if mark.is_relative_to(machines) and mark != machines:
            owners = [mark] if mark.parent != machines else [mark, *mark.glob("[0-9]*")]
            if not any(_is_held(owner) for owner in owners):
                yield pid, mark


@contextmanager
def _locked(place: Place) -> Iterator[int | None]:
    """The descriptor of a machine's lock; None where its process has it, or is about to have it."""
    descriptor = os.open(place.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor if _lock(descriptor) else None
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Locks for oneself. Whoever only looks whether it is locked is in the way for no longer than a moment."""
    give_up = time.monotonic() + _LOOKERS_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                return False
            time.sleep(_LOOKERS_SECONDS / 100)
        else:
            return True


def _is_held(folder: Path) -> bool:
    """Shared, so that two who look at once do not take each other for a machine."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
