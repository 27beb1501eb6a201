"""`Paths`: where runs keep their files, under the home, and how files are closed to others."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder of `spotctl`."""

KEPT_DAYS = 400
"""Logs and reports of older nights are deleted, and the output of older runs; results never are."""


class Paths:
    """Where runs keep their files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "log.sqlite"
        self.locks = home / "locks"
        """One lock per job, held by the process that runs it."""
        self.waiting = home / "waiting"
        """A file for each job that was launched and has not begun."""
        self.given = home / "given"
        """The files of jobs with keys that the command line gave."""
        self.quotas = home / "quotas.json"
        """The quotas that clouds stated for the account."""
        self.setup = home / "setup"
        """The things that were made in each account, once."""
        self.cache = home / "cache"
        """Copies of input data for machines on this computer."""
        self.data = home / "data"
        """The digests of data folders' files, and where they are stored."""
        self.runs = home / "runs"
        """A folder for each run."""

    def runner_output(self, process: int) -> Path:
        """The output of a runner in a process of its own; it is kept if the runner fails."""
        return self.home / "runners" / f"{process}.log"

    def elsewhere(self, job: str) -> Path:
        """The home of a run whose runner lives on a rented machine, as its launcher made it."""
        return self.home / "elsewhere" / job

    def kept(self, job: str) -> Path:
        """The state of a job's training that ended early, from which the next run resumes."""
        return self.home / "kept" / job

    def output(self, run: str) -> Path:
        """The output of the rented machines of a run."""
        return self.runs / run / "output"

    def tracked(self, run: str) -> Path:
        """The files of a run that experiment trackers keep on this computer."""
        return self.home / "tracked" / run

    def results(self, run: str) -> Path:
        """The results of a run, unless the job names another folder."""
        return self.runs / run


_OTHERS = 0o077


def make_private_folder(folder: Path) -> None:
    """Creates a folder for its owner alone, or closes it to others, unless it is a place that they
    share on purpose.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.stat().st_mode & stat.S_ISVTX and folder.resolve() != Path.home().resolve():
        _close_to_others(folder)


def make_private_file(path: Path) -> None:
    """Creates an empty file for its owner alone, or closes it to others.

    A file that exists is not opened: closing it again would release the locks that this process has
    on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _close_to_others(path)


def _close_to_others(path: Path) -> None:
    # On some file systems, and in another user's files, modes cannot be changed.
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
