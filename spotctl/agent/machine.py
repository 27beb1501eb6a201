"""The process that is a machine: `python -m spotctl.agent.machine CLOCK LOCK:FOLDER ...`, one machine for each folder.

The process that is started forks one for each machine and ends when all of them are up. Each is told what to do, and
tells how it is, through files of its folder, each replaced as a whole by its one writer:

- by the provider: `fate.json` (what the market has in store), `lease.json` (`until` when it may run), `leave.json` (it
  was given back `at`), `work.json` (the payload to run, and the machine's `index` in its order);
- by the machine: `state.json` (it is up), `notice.json` (it was warned and goes `until`), `result.json` (what the
  payload of that `name` ended with), `end.json` (when and why it ended: nothing of it runs any more).

`output` is what its commands print. `lock` is locked by whoever starts the machine, and the lock is handed to its
process with the descriptor LOCK: a machine lives exactly as long as its lock is held, however it dies. A machine
without a lease, because its folder was removed, ends itself. All times are the market's.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from spotctl.agent.clock import MarketClock
from spotctl.agent.command import Command
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.lease import FOLDER_VARIABLE, LeaseGiver
from spotctl.agent.planned_ending import EVICTED, FAILED, Ending, PlannedEnding, ending, warning
from spotctl.agent.processes import MARK

INDEX_VARIABLE = "SPOTCTL_INDEX"

_LOOK_SECONDS = 0.1
_SOURCE = "local"


@dataclass(frozen=True, slots=True)
class Work:
    """A payload as it stands in `work.json`."""

    name: str
    command: tuple[str, ...]
    index: int
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    term_at_notice: bool = True
    grace_seconds: float = 0.0


class Machine:
    """Looks at its files a few times a second, and at the moment at which something is due."""

    def __init__(self, folder: Path, clock: MarketClock) -> None:
        self._folder, self._clock = folder, clock
        self._fate = Watched(folder / "fate.json", lambda values: PlannedEnding(**values))
        self._lease = Watched(folder / "lease.json", lambda values: int(values["until"]))
        self._leave = Watched(folder / "leave.json", lambda values: int(values["at"]))
        self._work = Watched(folder / "work.json", _work)
        self._job = LeaseGiver(folder / "job")
        self._running: Command | None = None
        self._given: Work | None = None
        self._granted: tuple[int, float] | None = None
        self._warned = self._told_result = False
        self._killed = False
        self._wake = os.pipe()

    def live(self, up: Callable[[], None]) -> None:
        """From its start to its end. `up` is called when it runs what it was given to run."""
        self._listen()
        try:
            end = self._until_its_end(up)
        except BaseException:
            self._stop(0.0)
            self._record(Ending(self._clock.now(), FAILED))
            raise
        given = self._given
        self._stop(0.0 if given is None or end.reason == EVICTED else given.grace_seconds)
        self._record(end)

    def _until_its_end(self, up: Callable[[], None]) -> Ending:
        if (end := self._due(self._clock.now())) is not None:
            return end
        self._attend(self._clock.now())
        replace_json(self._folder / "state.json", {"pid": os.getpid()})
        up()
        while (end := self._due(self._clock.now())) is None:
            self._attend(self._clock.now())
            self._sleep()
        return end

    def _due(self, now: int) -> Ending | None:
        fate, lease = self._fate.value(), self._lease.value()
        if fate is None or lease is None or self._killed:
            return Ending(now, FAILED)
        return ending(fate, lease, self._leave.value(), now)

    def _attend(self, now: int) -> None:
        """Does what has to be done before the end: new work, a renewed lease, a notice, a result."""
        work = self._work.value()
        if work is not None and (self._given is None or work.name != self._given.name):
            self._start(work, now)
        self._hand_on_lease()
        self._hand_on_notice(now)
        self._tell_result()

    def _start(self, work: Work, now: int) -> None:
        if self._given is not None:
            self._stop(self._grace(self._given, now))
        own = self._folder / "work"
        own.mkdir(exist_ok=True)
        self._granted, self._warned, self._told_result = None, False, False
        self._hand_on_lease(first=True)
        environment = {
            **os.environ,
            **work.environment,
            MARK: str(self._folder),
            INDEX_VARIABLE: str(work.index),
            FOLDER_VARIABLE: str(self._job.folder),
        }
        folder = Path(work.folder) if work.folder else own
        self._running = Command(work.command, folder, environment, self._folder / "output", self._folder)
        self._given = work

    def _grace(self, work: Work, now: int) -> float:
        """No longer than until the market takes the machine."""
        fate = self._fate.value()
        if fate is None or fate.taken_at is None:
            return work.grace_seconds
        return max(min(work.grace_seconds, (fate.taken_at - now) / self._clock.speed / 1e6), 0.0)

    def _hand_on_lease(self, *, first: bool = False) -> None:
        """The job's lease is the machine's, in seconds of the computer's clock."""
        lease = self._lease.value()
        if lease is None or self._granted == (lease, self._clock.speed) or (self._running is None and not first):
            return
        seconds = max(self._clock.seconds_until(lease), 0.0)
        self._job.begin(seconds) if first else self._job.grant(seconds)
        self._granted = lease, self._clock.speed

    def _hand_on_notice(self, now: int) -> None:
        fate = self._fate.value()
        until = None if fate is None else warning(fate, now)
        if until is None or self._warned:
            return
        self._warned = True
        replace_json(self._folder / "notice.json", {"until": until})
        if self._running is not None and self._given is not None:
            self._job.notify("evict", max(self._clock.seconds_until(until), 0.0), _SOURCE)
            if self._given.term_at_notice:
                self._running.terminate()

    def _tell_result(self) -> None:
        if self._running is None or self._given is None or self._told_result:
            return
        code = self._running.exit_code()
        if code is not None:
            replace_json(self._folder / "result.json", {"name": self._given.name, "code": code})
            self._told_result = True

    def _stop(self, grace_seconds: float) -> None:
        if self._running is not None:
            self._running.end(grace_seconds)
            self._running = None

    def _record(self, end: Ending) -> None:
        if self._folder.is_dir():
            replace_json(self._folder / "end.json", asdict(end), lasting=True)

    def _listen(self) -> None:
        """A child's death wakes it; being asked to end, as at the computer's shutdown, is a failure of the machine."""
        for end in self._wake:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self._killed = True

    def _sleep(self) -> None:
        """Until something is due or happens, and no longer than a file may go unread."""
        fate, lease = self._fate.value(), self._lease.value()
        moments = [lease] if fate is None else [lease, fate.taken_at, None if self._warned else fate.warned_at]
        waits = [max(self._clock.seconds_until(moment), 0.0) for moment in moments if moment is not None]
        if select.select([self._wake[0]], [], [], min([_LOOK_SECONDS, *waits]))[0]:
            os.read(self._wake[0], 4096)


def main(arguments: Sequence[str]) -> None:
    """Forks the machines, and returns when each of them is up or has ended."""
    clock = MarketClock(Path(arguments[0]))
    machines = [(int(lock), Path(folder)) for lock, folder in (one.split(":", 1) for one in arguments[1:])]
    locks = {lock for lock, _ in machines}
    ups: list[int] = []
    for lock, folder in machines:
        up = os.pipe()
        if os.fork() == 0:
            for descriptor in {up[0], *ups, *(locks - {lock})}:
                os.close(descriptor)
            _live(Machine(folder, clock), up[1])
        os.close(up[1])
        os.close(lock)
        locks.discard(lock)
        ups.append(up[0])
    for descriptor in ups:
        # Nothing is written: the end comes when the machine closes its side, or dies.
        os.read(descriptor, 1)


def _live(machine: Machine, up: int) -> NoReturn:
    """The life of a fork, which never returns to its parent's code."""
    status = 1
    try:
        os.setsid()
        machine.live(up=lambda: os.close(up))
        status = 0
    except BaseException:  # noqa: BLE001 - a fork must not go on in its parent's code, whatever happened
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _work(values: dict[str, Any]) -> Work:
    return Work(**{**values, "command": tuple(values["command"])})


if __name__ == "__main__":
    main(sys.argv[1:])
