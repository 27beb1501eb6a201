"""`Tracker`: one run in an experiment tracker; and which libraries have to be installed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.show.tracking.points import Point


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The description of a run that a tracker gets once: `about` are the job's settings, `folder` is for its files."""

    job: str
    run: str
    started: int
    about: Mapping[str, str]
    tags: Mapping[str, str]
    folder: Path


class Tracker(Protocol):
    """A run in a tracker. Its methods may wait for a server, and raise what the tracker's library raises."""

    @property
    def events(self) -> int:
        """The number of the run's events whose points the tracker has, from this process or an earlier one."""

    def send(self, points: Sequence[Point], events: int) -> None:
        """Adds points; with them, it has those of this number of events."""

    def end(self, outcome: str, at: int) -> None:
        """Says how the run has ended."""

    def leave(self) -> None:
        """Stops adding points; the run may go on."""


def check_installed(spec: JobSpec) -> None:
    """BadRequest: the job names a tracker whose library is missing here."""
    for name in spec.track:
        if find_spec(name) is None:
            raise BadRequest(f"{spec.name}: track: {name} is not installed: pip install {name}, or remove track")
