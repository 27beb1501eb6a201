"""Jobs that were launched and have not begun: a file for each, as long as the job may still begin.

Only one process can remove a file, and so decide: the launcher, which begins the job, or `spotctl stop`, which
withdraws it. The files of a launcher that was killed remain.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec

from pricing_data.atomic_write import atomic_write
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths, make_private_folder
from spotctl.log.store import is_running


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that has not begun, the jobs whose ends it waits for, when they are expected to have ended, by the market's
    clock (None if that is unknown), and the job file."""

    name: str
    after: tuple[str, ...]
    begins: int | None
    file: str

    def is_attended(self, paths: Paths) -> bool:
        """Whether the launcher that will begin the job is at work."""
        return is_running(paths.locks, self.name)

    def awaited(self, paths: Paths) -> list[str]:
        """The jobs that it still waits for."""
        return [name for name in self.after if is_running(paths.locks, name)]


def add(paths: Paths, job: WaitingJob) -> None:
    """Adds a job; its launcher holds the job's lock."""
    make_private_folder(paths.waiting)
    with atomic_write(_file(paths, job.name)) as out:
        out.write_bytes(msgspec.json.encode(job))


def is_waiting(paths: Paths, name: str) -> bool:
    """Whether a job may still begin."""
    return _file(paths, name).exists()


def remove(paths: Paths, name: str) -> bool:
    """Removes a job, to begin or to withdraw it; False if it does not wait, or another process was faster."""
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
    return sorted(jobs.values(), key=lambda job: (inf if job.begins is None else job.begins, job.name))


def left_behind(paths: Paths, name: str) -> WaitingJob | None:
    """A job that has not begun, and whose launcher is gone. BadRequest: its launcher is at work, and will begin it."""
    job = next((job for job in waiting_jobs(paths) if job.name == name), None)
    if job is not None and job.is_attended(paths):
        raise BadRequest(f"job {name} has not begun, so it has no run yet ('spotctl status {name}' says why)")
    return job


def _file(paths: Paths, name: str) -> Path:
    return paths.waiting / f"{name}.json"
