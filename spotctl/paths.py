"""`Paths`: where runs keep what is theirs, under the home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """Where runs keep what is theirs, under the home."""

    home: Path

    @property
    def log(self) -> Path:
        """The event log of all runs."""
        return self.home / "log.sqlite"

    @property
    def locks(self) -> Path:
        """Who runs what."""
        return self.home / "locks"

    @property
    def cache(self) -> Path:
        """Where data of commands is kept for machines of this computer."""
        return self.home / "cache"

    def kept(self, job: str) -> Path:
        """Where a training that was ended early is kept, for the job's next run to go on with."""
        return self.home / "kept" / job

    def results(self, run: str) -> Path:
        """Where a run's results lie if nothing else is asked for."""
        return self.home / "runs" / run
