"""Leases: how long a job may keep its machine, told through three files by a runner on the same machine.

In a folder that belongs to this machine and this job, each file replaced as a whole by its one writer:

- `lease.json`, by the runner: `{"number": 7, "ends": 812.5, "boot": "..."}`. The job may run until `ends`. To renew,
  the runner writes the next number with a later end; not to renew, it writes nothing.
- `notice.json`, by the runner: `{"number": 1, "kind": "evict", "deadline": 815.0, "boot": "...", "source": "aws"}`.
  `hint`: an eviction may come; the job saves and goes on. `evict`, `move`, `stop`: it saves and ends, at once.
- `progress.json`, by the job: steps done, the newest checkpoint, how long one takes to write, and `wants`: the number
  of the lease that it asks for. `state` is `running`, `ended` (saved, to be started elsewhere) or `finished`.

Times are seconds of the machine's monotonic clock, which all its processes share and nobody sets; `boot` tells one run
of that clock from the next. Files, because a runner that was killed and started again finds what was agreed on, and its
job did not notice. A runner calls `begin` before it starts the job, and sends no signal before a notice's deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json

FOLDER_VARIABLE = "SPOTCTL_LEASE"
"""Names the folder to the job. Without it nobody leases, and the job runs as long as it likes."""

KINDS = ("hint", "evict", "move", "stop")
# A save may take longer than the last one: the model grew, the disk is busy.
_SAVE_MARGIN = 2.0
# Asked for so long before the end that a runner that looks around once a second can answer in time.
_ASK_SECONDS = 5.0
_ASK_SHARE = 0.25

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Lease:
    """The job may run until `ends`."""

    number: int
    ends: float
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is about to happen to the machine or to the job, by when, and who says so."""

    number: int
    kind: str
    deadline: float
    source: str
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the job is. `checkpoint` is the step of the newest one, None before the first."""

    pid: int
    state: str
    epoch: int
    step: int
    checkpoint: int | None
    saving_seconds: float | None
    lease: int
    wants: int | None
    reason: str = ""


class Act(Enum):
    """What a job does before its next step."""

    END = 0
    SAVE = 1
    GO = 2


@dataclass(frozen=True, slots=True)
class Decision:
    """An act and its reason; `ask` is the number of the lease to ask for."""

    act: Act
    reason: str = ""
    ask: int | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """What the job's own past says: steps since it started here, its slowest recent one, and how long a save takes.

    `saving_seconds` is None before the first save; `since_save` counts from the start then.
    """

    steps: int
    step_seconds: float
    saving_seconds: float | None
    since_save: float


def decide(
    now: float, lease: Lease | None, notice: Notice | None, pace: Pace, length: float, save_every: float
) -> Decision:
    """What to do before the next step. Pure: `length` is how long the lease was when it was granted.

    A lease is left in time for one more step and a save. Without a lease only saves are due. The first is due after one
    step: then it is known how long a save takes, and whether it works at all, long before it has to.
    """
    if notice is not None and notice.kind != "hint":
        return Decision(Act.END, f"{notice.kind} announced by {notice.source}")
    ask = None
    if lease is not None:
        needed = pace.step_seconds + _SAVE_MARGIN * (pace.saving_seconds or 0.0)
        left = lease.ends - now
        if left <= needed:
            return Decision(Act.END, f"lease {lease.number} ends in {left:.1f} s and was not renewed")
        if left <= needed + max(min(_ASK_SECONDS, length / 2), _ASK_SHARE * length):
            ask = lease.number + 1
    if notice is not None:
        return Decision(Act.SAVE, f"{notice.kind} by {notice.source}", ask)
    if (pace.saving_seconds is None and pace.steps > 0) or pace.since_save >= save_every:
        return Decision(Act.SAVE, "a save is due", ask)
    return Decision(Act.GO, ask=ask)


class LeaseHolder:
    """The job's side. Reads are a look at the files' time stamps until something has changed."""

    def __init__(self, folder: Path, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._folder = folder
        self._lease: Watched[Lease] = Watched(folder / "lease.json", _lease)
        self._notice: Watched[Notice] = Watched(folder / "notice.json", _notice)
        self._seen = 0
        self._length = 0.0
        self._known: Lease | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> LeaseHolder | None:
        """The holder of the folder that the runner names, or None where no runner does."""
        folder = environment.get(FOLDER_VARIABLE)
        return cls(Path(folder)) if folder else None

    def lease(self) -> Lease:
        """The lease in force. One that vanishes while the job runs is held to, and then not renewed."""
        found = self._lease.value() or self._known
        if found is None:
            raise BrokenProtocol(f"{self._folder}: no lease.json of this boot; a runner grants before it starts a job")
        if found != self._known:
            self._known, self._length = found, max(0.0, found.ends - self.clock())
        return found

    @property
    def length(self) -> float:
        """How long the lease in force was when it was first seen."""
        return self._length

    def notice(self) -> Notice | None:
        """A notice that was not heeded yet."""
        found = self._notice.value()
        return found if found is not None and found.number > self._seen else None

    def heeded(self, notice: Notice) -> None:
        """A notice has been acted on; it is not given again."""
        self._seen = notice.number

    def report(self, progress: Progress) -> None:
        """Tells the runner how far the job is."""
        replace_json(self._folder / "progress.json", asdict(progress))


class LeaseGiver:
    """The runner's side. It keeps nothing in memory: after a kill another one goes on from the same folder."""

    def __init__(self, folder: Path, clock: Clock = time.monotonic) -> None:
        self.folder, self._clock = folder, clock

    def begin(self, seconds: float) -> Lease:
        """Grants the first lease of a job that is about to start; what was told to an earlier one is gone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("notice.json", "progress.json"):
            (self.folder / name).unlink(missing_ok=True)
        return self.grant(seconds)

    def grant(self, seconds: float) -> Lease:
        """Lets the job run for so long from now, under the next number."""
        before = Watched(self.folder / "lease.json", _lease).value()
        lease = Lease(before.number + 1 if before else 1, self._clock() + seconds, boot_id())
        replace_json(self.folder / "lease.json", asdict(lease))
        return lease

    def notify(self, kind: str, seconds: float, source: str) -> Notice:
        """Announces what happens in so many seconds."""
        if kind not in KINDS:
            raise BrokenProtocol(f"notice of kind {kind!r}: is none of {', '.join(KINDS)}")
        before = Watched(self.folder / "notice.json", _notice).value()
        notice = Notice(before.number + 1 if before else 1, kind, self._clock() + seconds, source, boot_id())
        replace_json(self.folder / "notice.json", asdict(notice))
        return notice

    def progress(self) -> Progress | None:
        """What the job last reported; None before it did."""
        return Watched(self.folder / "progress.json", lambda values: Progress(**values)).value()

    def renewal_wanted(self) -> bool:
        """Whether the job asks for the lease after the one in force."""
        progress, lease = self.progress(), Watched(self.folder / "lease.json", _lease).value()
        return progress is not None and lease is not None and progress.wants == lease.number + 1


@cache
def boot_id() -> str:
    """Identifies this boot of the machine, so that times of an earlier one are not mistaken for times of this one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Elsewhere than on Linux the lease's folder must be one that a reboot empties.
        return ""


def _lease(values: dict[str, Any]) -> Lease | None:
    lease = Lease(int(values["number"]), float(values["ends"]), str(values["boot"]))
    return lease if lease.boot == boot_id() else None


def _notice(values: dict[str, Any]) -> Notice | None:
    kind = str(values["kind"])
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    boot = str(values["boot"])
    notice = Notice(int(values["number"]), kind, float(values["deadline"]), str(values["source"]), boot)
    return notice if boot == boot_id() else None
