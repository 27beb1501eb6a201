"""Leases of jobs: how long a job may keep its machine. Agent and job exchange three files on the
machine.

The files are in a folder of this job on this machine, each replaced as a whole by its only writer:

- `lease.json`, by the agent: `{"number": 7, "ends": 812.5, "boot": "..."}`. The job may run until
  `ends`. A renewal is the next number with a later end.
- `notice.json`, by the agent: `{"number": 1, "kind": "evict", "deadline": 815.0, "boot": "...",
  "source": "aws"}`. `hint`: an eviction may come; the job saves and continues. `evict`, `move`,
  `stop`: the job saves and exits at once.
- `progress.json`, by the job: steps done, the newest checkpoint, the time of a save, and `wants`,
  the number of the lease that the job requests. `state` is `running`, `ended` (saved, to be started
  elsewhere) or `finished`.

Times are seconds of the machine's monotonic clock, which its processes share and which cannot be
set; `boot` identifies one run of that clock. Files let a job read its lease without a connection,
and survive a restart of either side. The agent calls `begin` before it starts the job.
"""

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
from spotctl.agent.layout import LEASE_VARIABLE

KINDS = ("hint", "evict", "move", "stop")
# A save may take longer than the last one: the model grew, the disk is busy.
_SAVE_MARGIN = 2.0
# Early enough that an agent that looks once a second can renew in time.
_ASK_SECONDS = 5.0
_ASK_SHARE = 0.25

SecondsClock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: the job may run until `ends`."""

    number: int
    ends: float
    boot: str = ""


@dataclass(frozen=True, slots=True)
class MachineNotice:
    """An announcement that a machine will be taken (`kind` "evict") at `until`, or may be ("hint"),
    by `source`.

    `until` is in microseconds of the provider's clock, which is UTC except in simulations.
    """

    kind: str
    until: int
    source: str


@dataclass(frozen=True, slots=True)
class LeaseNotice:
    """An announcement to the job: the kind of event, its deadline, and the source of the notice."""

    number: int
    kind: str
    deadline: float
    source: str
    boot: str = ""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job's progress. `checkpoint` is the step of the newest checkpoint, None before the
    first."""

    pid: int
    state: str
    epoch: int
    step: int
    checkpoint: int | None
    saving_seconds: float | None
    lease: int
    wants: int | None
    reason: str = ""


class LeaseAct(Enum):
    """A job's act before its next step."""

    END = 0
    SAVE = 1
    GO = 2


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    """An act and its reason; `ask` is the number of the lease to request."""

    act: LeaseAct
    reason: str = ""
    ask: int | None = None


@dataclass(frozen=True, slots=True)
class JobPace:
    """A job's measured pace: steps since the start on this machine, the slowest recent step, and
    the time of a save.

    Before the first save, `saving_seconds` is None and `since_save` counts from the start.
    """

    steps: int
    step_seconds: float
    saving_seconds: float | None
    since_save: float


def decide(
    now: float,
    lease: Lease | None,
    notice: LeaseNotice | None,
    pace: JobPace,
    length: float,
    save_every: float,
) -> LeaseDecision:
    """Decides on the act before the next step. Pure; `length` is the lease's duration when it was
    granted.

    A job ends while its lease leaves time for one more step and a save. Without a lease the job
    only saves. The first save is due after one step, to learn early how long a save takes and
    whether it works.
    """
    if notice is not None and notice.kind != "hint":
        return LeaseDecision(LeaseAct.END, f"{notice.kind} announced by {notice.source}")

    ask = None
    if lease is not None:
        needed = pace.step_seconds + _SAVE_MARGIN * (pace.saving_seconds or 0.0)
        left = lease.ends - now
        if left <= needed:
            return LeaseDecision(
                LeaseAct.END, f"lease {lease.number} ends in {left:.1f} s and was not renewed"
            )
        if left <= needed + max(min(_ASK_SECONDS, length / 2), _ASK_SHARE * length):
            ask = lease.number + 1

    if notice is not None:
        return LeaseDecision(LeaseAct.SAVE, f"{notice.kind} by {notice.source}", ask)
    if (pace.saving_seconds is None and pace.steps > 0) or pace.since_save >= save_every:
        return LeaseDecision(LeaseAct.SAVE, "a save is due", ask)
    return LeaseDecision(LeaseAct.GO, ask=ask)


class LeaseHolder:
    """The job's side. A read costs one look at a file's time stamp, until the file changes."""

    def __init__(self, folder: Path, clock: SecondsClock = time.monotonic) -> None:
        self.clock = clock
        self._folder = folder
        self._lease: Watched[Lease] = Watched(folder / "lease.json", _lease)
        self._notice: Watched[LeaseNotice] = Watched(folder / "notice.json", _notice)
        self.seen = 0
        """The number of the last notice that the job has acted on."""
        self.length = 0.0
        """The current lease's duration when it was first seen, in seconds."""
        self._known: Lease | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "LeaseHolder | None":
        """The holder of the folder that the environment names; None if there is no name."""
        folder = environment.get(LEASE_VARIABLE)
        return cls(Path(folder)) if folder else None

    def lease(self) -> Lease:
        """The current lease, or the last known one if the file vanishes. BrokenProtocol: there
        never was a lease.
        """
        lease = self._lease.value() or self._known
        if lease is None:
            raise BrokenProtocol(
                f"{self._folder}: no lease.json of this boot; an agent writes one before the job"
            )
        if lease != self._known:
            self._known, self.length = lease, max(0.0, lease.ends - self.clock())
        return lease

    def notice(self) -> LeaseNotice | None:
        """A notice that the job has not acted on yet."""
        notice = self._notice.value()
        return notice if notice is not None and notice.number > self.seen else None

    def report(self, progress: JobProgress) -> None:
        replace_json(self._folder / "progress.json", asdict(progress))


class LeaseGrantor:
    """The agent's side. All state is in the folder, so a restarted agent continues from there."""

    def __init__(self, folder: Path, clock: SecondsClock = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        self.granted_until = 0.0
        """The end of the last lease that this object has granted."""

    def begin(self, seconds: float) -> Lease:
        """Grants the first lease of a job that is about to start; notices to an earlier job are
        removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("notice.json", "progress.json"):
            (self.folder / name).unlink(missing_ok=True)
        return self.grant(seconds)

    def grant(self, seconds: float) -> Lease:
        """Lets the job run for this many seconds from now, under the next number."""
        before = Watched(self.folder / "lease.json", _lease).value()
        lease = Lease(before.number + 1 if before else 1, self._clock() + seconds, boot_id())
        replace_json(self.folder / "lease.json", asdict(lease))
        self.granted_until = lease.ends
        return lease

    def notify(self, kind: str, seconds: float, source: str) -> LeaseNotice:
        """Announces an event of this kind in this many seconds."""
        if kind not in KINDS:
            raise BrokenProtocol(f"notice of kind {kind!r}: expected one of {', '.join(KINDS)}")
        before = Watched(self.folder / "notice.json", _notice).value()
        notice = LeaseNotice(
            before.number + 1 if before else 1, kind, self._clock() + seconds, source, boot_id()
        )
        replace_json(self.folder / "notice.json", asdict(notice))
        return notice

    def progress(self) -> JobProgress | None:
        """The job's last report; None before the first."""
        return Watched(self.folder / "progress.json", lambda values: JobProgress(**values)).value()

    def renewal_wanted(self) -> bool:
        """Whether the job requests the lease after the current one."""
        progress, lease = self.progress(), Watched(self.folder / "lease.json", _lease).value()
        return progress is not None and lease is not None and progress.wants == lease.number + 1


@cache
def boot_id() -> str:
    """Identifies this boot of the machine, so that times of an earlier boot are not mistaken for
    times of this one.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Elsewhere than on Linux the lease's folder must be one that a reboot empties.
        return ""


def _lease(values: dict[str, Any]) -> Lease | None:
    lease = Lease(int(values["number"]), float(values["ends"]), str(values["boot"]))
    return lease if lease.boot == boot_id() else None


def _notice(values: dict[str, Any]) -> LeaseNotice | None:
    kind = str(values["kind"])
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    boot = str(values["boot"])
    notice = LeaseNotice(
        int(values["number"]), kind, float(values["deadline"]), str(values["source"]), boot
    )
    return notice if boot == boot_id() else None
