"""Which process runs a job, and which jobs wait for their turn.

A job has one run at a time: the lock of a job belongs to a process and ends with it. A job that was
launched and has not begun has a file, as long as it may still begin. Only one process can remove
this file, and so decide: the launcher, which begins the job, or `spotctl stop`, which withdraws it.
The files of a launcher that was killed remain.
"""

import os
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType

import msgspec

from agileml.runtime.ground import is_locked, take_lock
from pricing_data.atomic_write import atomic_write
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths, make_private_folder
from spotctl.log.outcomes import AlreadyRunning


class JobLock(AbstractContextManager["JobLock"]):
    """Held by the process that runs a job. The system releases it when the process ends, by
    whatever signal.
    """

    def __init__(self, folder: Path, job: str) -> None:
        make_private_folder(folder.parent)
        make_private_folder(folder)
        path = folder / f"{job}.lock"
        try:
            # A process that only checks the lock holds it for a moment.
            self._descriptor = take_lock(path, seconds=_CHECK_SECONDS)
        except BlockingIOError:
            holder = path.read_text().strip() or "unknown"
            raise AlreadyRunning(
                f"job {job} is already running as process {holder} ('spotctl stop {job}' stops it)"
            ) from None

        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)


_CHECK_SECONDS = 0.12


def runner_of(folder: Path, job: str) -> int | None:
    """The process that holds the lock of a job, or held it last; None if there was none."""
    try:
        return int((folder / f"{job}.lock").read_text())
    except (FileNotFoundError, ValueError):
        return None


def is_running(folder: Path, job: str) -> bool:
    """Whether a process holds the lock of a job."""
    return is_locked(folder / f"{job}.lock")


def is_used_elsewhere(folder: Path) -> bool:
    """Whether another process runs a job."""
    own = os.getpid()
    names = [lock.stem for lock in folder.glob("*.lock")]
    return any(is_running(folder, name) and runner_of(folder, name) != own for name in names)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that has not begun, the jobs whose ends it waits for, when they are expected to have
    ended, by the market's clock (None if that is unknown), and the job file."""

    name: str
    after: tuple[str, ...]
    begins: int | None
    file: str

    def awaited(self, paths: Paths) -> list[str]:
        """The jobs that it still waits for."""
        return [name for name in self.after if is_running(paths.locks, name)]


def add_waiting(paths: Paths, job: WaitingJob) -> None:
    """Adds a job; its launcher holds the job's lock."""
    make_private_folder(paths.waiting)
    with atomic_write(_file(paths, job.name)) as out:
        out.write_bytes(msgspec.json.encode(job))


def is_waiting(paths: Paths, name: str) -> bool:
    """Whether a job may still begin."""
    return _file(paths, name).exists()


def remove_waiting(paths: Paths, name: str) -> bool:
    """Removes a job, to begin or to withdraw it; False if it does not wait, or another process was
    faster.
    """
    try:
        _file(paths, name).unlink()
    except FileNotFoundError:
        return False
    return True


def waiting_jobs(paths: Paths) -> list[WaitingJob]:
    """The jobs that have not begun, in the order in which they are expected to begin."""
    jobs = dict[str, WaitingJob]()
    for file in paths.waiting.glob("[!.]*.json"):
        # Gone since then, or not written by spotctl.
        with suppress(OSError, msgspec.MsgspecError):
            jobs[file.stem] = msgspec.json.decode(file.read_bytes(), type=WaitingJob)
    return sorted(
        jobs.values(), key=lambda job: (inf if job.begins is None else job.begins, job.name)
    )


def left_behind(paths: Paths, name: str) -> WaitingJob | None:
    """A job that has not begun, and whose launcher is gone. BadRequest: its launcher is at work,
    and will begin it.
    """
    job = next((job for job in waiting_jobs(paths) if job.name == name), None)
    if job is not None and is_running(paths.locks, name):
        raise BadRequest(
            f"job {name} has not begun, so it has no run yet ('spotctl status {name}' says why)"
        )
    return job


def _file(paths: Paths, name: str) -> Path:
    return paths.waiting / f"{name}.json"
