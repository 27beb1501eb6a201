"""Commands to record, as plain values: the recorder of each tree reads them as JSON."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Step:
    """A command of a scenario: `spotctl WORDS`, or with `script`, `python WORDS` in the checkout of
    its tree.
    """

    words: Sequence[str]
    name: str = ""
    """Its words, unless these are too long or the same as another's."""
    exact: bool = True
    """False where real processes decide the figures: then only keys, types and texts without
    numbers are compared."""
    process: bool = False
    """Whether it runs in a process of its own, with the real clock, by the command that the tree's
    installation has."""
    script: bool = False
    background: str = ""
    """The name of the run that it begins and that later steps meet: it is killed at the end of the
    scenario."""
    pages: bool = False
    """Whether it serves pages until it is killed: these are its output."""
    kills: str = ""
    """The name of a run that a background command began: SIGKILL ends that command, and nothing
    else is done."""
    clock: int = 0
    """The next command begins when the training of a background command has reached it; 0: when a
    machine prints."""
    folder: str = "."
    """Where it runs, below the scenario's folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 900.0
    """A longer one is killed, and recorded as such: many times what it takes, since other work may
    go on meanwhile."""
    expected: Sequence[int] = (0,)
    """Exit codes with which a home can be recorded."""
    keep_output: str = ""
    """A file for its output, which later steps read."""

    @property
    def title(self) -> str:
        return self.name or shlex.join(self.words)


@dataclass(frozen=True)
class Scenario:
    """Commands that run one after another in one folder, with one home."""

    name: str
    steps: Sequence[Step]
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    """Folders of the checkout of BASE that it finds in its own."""
    home: str = ""
    """The recorded home that it gets a copy of."""
    now: str = "2026-06-11T00:00:00Z"
    """The time at which the clock of commands stands that are no processes of their own.

    Empty: an hour after its home was recorded.
    """
    together: bool = False
    """Whether one process runs them all, which is faster: for commands that leave nothing behind in
    it."""
    keep: bool = False
    """Whether its folder is kept, for others that get a copy of its home. What it began is stopped
    meanwhile."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Programs that stand for those of the computer, such as crontab."""

    def titles(self) -> list[str]:
        return [f"{self.name}: {step.title}" for step in self.steps]

    def digest(self, *other: str) -> str:
        """A name for the recording of it, with all else that the recording depends on; how long it
        may take is not.
        """
        values = asdict(self)
        for step in values["steps"]:
            del step["seconds"]
        text = json.dumps([values, *other], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]
