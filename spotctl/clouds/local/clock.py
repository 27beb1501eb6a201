"""The market's clock: a file from which every process on this computer reads the same time.

Market time is the time at an anchor plus the time since then on the computer's monotonic clock,
times a speed. The monotonic clock cannot be set and stops while the computer sleeps, so a suspended
night does not evict every machine. After a reboot the market continues from the last moment that
was noted.

The clock stands still for as long as the computer has kept the market's machines from their work.
A delay is known once it is over, so the clock stands afterwards: `standing.json` says from when
until when.

A cloud's machines start without any work of ours, and their processors do nothing else. On a
computer that is busy with other programs both take time, which the market's fast clock would
multiply. A delay is

- the time from the start of a machine's process until its payload runs, of a run until its first
  decision, and while machines wait for their launcher or load a training's libraries, each for at
  most a minute;
- the time that processes wait for a processor on which another program runs. Linux counts it;
  elsewhere it is unknown.

A process that sleeps, waits for something else or computes is not delayed. The processes of a job
wait for each other while one of them waits for a processor; so all that work on the market are
measured together (`delay_of`). While no machine has a program, the processes that order machines
count instead.

Each process that takes part has a file in `delays/` (each thread that starts machines another one),
which says nothing once the process has died. All of them look whether it is time to measure, and
the first one does, so the clock depends on none of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import get_native_id
from typing import Any

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.lease.lease_files import boot_id

_NANOS_PER_MICRO = 1000
_HOUR = 3600 * 10**6
_NOTE_EVERY_SECONDS = 1.0

MAX_STANDING_SECONDS = 300
"""How long the clock stands in an hour of market time at most."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `monotonic_ns` of one boot it was `market` (microseconds); `seen` is the latest market
    time that was noted.
    """

    market: int
    monotonic_ns: int
    speed: float
    boot: str
    seen: int

    def time(self, monotonic_ns: int, boot: str, stood_ns: int) -> int:
        """The market's time. After a reboot the anchor is useless, and market time stops."""
        elapsed = monotonic_ns - self.monotonic_ns
        if boot != self.boot or elapsed < 0:
            return max(self.seen, self.market)
        return self.market + int((elapsed - stood_ns) * self.speed / _NANOS_PER_MICRO)


@dataclass(frozen=True, slots=True)
class Standing:
    """How long the clock has stood since it was set to the `anchor`: `stood_ns` until `since`, and
    from then `until`.

    `looked` is when delays were last measured. In the `hour` of market time the clock was made to
    stand for `hour_ns`. Other times are on the computer's monotonic clock.
    """

    anchor: int
    looked: int
    stood_ns: int = 0
    since: int = 0
    until: int = 0
    hour: int = 0
    hour_ns: int = 0

    def by(self, monotonic_ns: int) -> int:
        """How long the clock has stood by now."""
        return self.stood_ns + max(min(monotonic_ns, self.until) - self.since, 0)


class MarketClock:
    """Reads the files. The callers of `start` and `note` hold the provider's lock, so that there is
    one writer.
    """

    def __init__(
        self,
        path: Path,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        boot: Callable[[], str] | None = None,
    ) -> None:
        self.path = path
        self._monotonic_ns, self._boot = monotonic_ns, boot or boot_id
        self._anchor: Watched[Anchor] = Watched(path, lambda values: Anchor(**values))
        self._standing = Watched(path.with_name("standing.json"), lambda values: Standing(**values))
        self._latest = 0, 0

    @property
    def started(self) -> bool:
        """Whether there is a market time."""
        return self._anchor.value() is not None

    @property
    def speed(self) -> float:
        """Seconds of market time per second."""
        return self._known().speed

    def now(self) -> int:
        """The market's time in microseconds. It does not go back, also when it was just found to
        have stood.
        """
        anchor, at = self._known(), self._monotonic_ns()
        now = anchor.time(at, self._boot(), self.standing.by(at))
        which, latest = self._latest
        self._latest = (
            anchor.monotonic_ns,
            max(now, latest) if which == anchor.monotonic_ns else now,
        )
        return self._latest[1]

    @property
    def standing(self) -> Standing:
        """How long the clock has stood."""
        anchor, known = self._known(), self._standing.value()
        return (
            known
            if known is not None and known.anchor == anchor.monotonic_ns
            else Standing(anchor.monotonic_ns, 0)
        )

    def seconds(self) -> float:
        """Seconds of this computer in which the clock has run, from an arbitrary moment on."""
        at = self._monotonic_ns()
        return (at - self.standing.by(at)) / 1e9

    def delay(self, delay_ns: int) -> None:
        """Has the clock stand for a delay that ends now. One process at a time calls this."""
        before, now, hour = self.standing, self._monotonic_ns(), self.now() // _HOUR
        stood_ns, since = before.by(now), now
        if now < before.until:
            stood_ns, since = before.stood_ns, before.since
        in_hour = before.hour_ns if hour == before.hour else 0
        added = min(delay_ns, MAX_STANDING_SECONDS * 10**9 - in_hour)
        until = max(before.until, now) + added
        standing = Standing(before.anchor, now, stood_ns, since, until, hour, in_hour + added)
        replace_json(self.path.with_name("standing.json"), asdict(standing))

    def seconds_until(self, moment: int) -> float:
        """Seconds of this computer until the market reaches a moment; negative if it already
        has."""
        return (moment - self.now()) / self.speed / 1e6

    def start(self, market: int, speed: float) -> None:
        replace_json(
            self.path,
            asdict(Anchor(market, self._monotonic_ns(), speed, self._boot(), market)),
            lasting=True,
        )

    def note(self) -> None:
        """Saves the market's time in case the computer reboots; after a reboot, the clock continues
        from there.
        """
        anchor, now = self._known(), self.now()
        if self._boot() != anchor.boot or self._monotonic_ns() < anchor.monotonic_ns:
            self.start(now, anchor.speed)
        elif now - anchor.seen >= _NOTE_EVERY_SECONDS * anchor.speed * 1e6:
            replace_json(self.path, asdict(anchor) | {"seen": now}, lasting=True)

    def _known(self) -> Anchor:
        anchor = self._anchor.value()
        if anchor is None:
            cure = "start the market first (spotctl launch)"
            raise BrokenProtocol(f"{self.path}: there is no market time yet; {cure}")
        return anchor


MAX_START_NS = 60 * 10**9
"""How long the start of machines is a delay at most."""

_EVERY_NS = 250_000_000
_PROC = Path("/proc")


class Delays:
    """This process's part in the measurement. `depth`: how many forks below it the processes of the
    job's work are.
    """

    def __init__(self, clock: MarketClock, depth: int) -> None:
        self._clock, self._depth = clock, depth
        self._folder = clock.path.with_name("delays")

    def take_part(self, *, starting: bool = False, as_: str = "") -> Path:
        """Has this process and its children measured from now on; `starting`: what it starts delays
        it from now on.

        Returns the thread's file that says so; `as_` is the end of its name.
        """
        self._folder.mkdir(exist_ok=True)
        since = time.monotonic_ns() if starting else None
        file = self._folder / f"{os.getpid()}-{get_native_id()}{as_}.json"
        replace_json(file, {"born": _born(os.getpid()), "depth": self._depth, "starting": since})
        return file

    def look(self) -> None:
        """Measures, if the last time is long enough ago and no other process does. A full disk
        delays nothing.
        """
        if time.monotonic_ns() - self._clock.standing.looked < _EVERY_NS:
            return
        with suppress(OSError):
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._measure()
            finally:
                os.close(lock)

    def _measure(self) -> None:
        now, since = time.monotonic_ns(), self._clock.standing.looked
        if now - since < _EVERY_NS:
            return

        at_work, other, begun = dict[str, list[int]](), dict[str, list[int]](), list[int]()
        for file in self._folder.glob("*.json"):
            pid, values = int(file.stem.partition("-")[0]), json.loads(file.read_text())
            if _born(pid) != values["born"]:
                file.unlink(missing_ok=True)
                continue
            begun += [] if values["starting"] is None else [values["starting"]]
            for below, child in _tree(pid):
                (at_work if below >= values["depth"] else other).update(_times(child))

        path = self._folder / "threads"
        busy, threads = _busy(), at_work | other
        kept = {"busy": busy, "threads": threads}
        before: dict[str, Any] = json.loads(path.read_text()) if path.exists() and since else kept
        replace_json(path, kept)

        started = max((min(now, at + MAX_START_NS) - max(since, at) for at in begun), default=0)
        spent = {}
        for name, (run, wait) in threads.items():
            ran_before, waited_before = before["threads"].get(name, (0, 0))
            # Another thread may have had its number.
            is_same = run >= ran_before and wait >= waited_before
            spent[name] = (run - ran_before, wait - waited_before) if is_same else (run, wait)

        ran = sum(run for run, _ in spent.values())
        delayed = [spent[name] for name in at_work or other]
        waited = delay_of(delayed, ran, max(busy - before["busy"] - ran, 0), now - since)
        self._clock.delay(max(started, waited))


def delay_of(threads: Sequence[tuple[int, int]], ran: int, others: int, elapsed: int) -> int:
    """How long threads that depend on each other were delayed by other programs, in a period;
    nanoseconds.

    Each of the `threads` has run for r and waited for a processor for w. The market's processes
    `ran` for R together, and `others` for O. A thread that waits is kept from running by all that
    run instead: by other programs for the share d = w O / (O + R - r). Together the threads could
    run for as long as they did both, or during all that has `elapsed`; of this time, they were
    delayed by their share of waiting for other programs:

        delay = min(sum(r + w), elapsed) sum(d) / sum(r + w)

    That is exact for one thread. It is close for equal threads side by side, and for a chain of
    threads that each wait for the one before.
    """
    ready = sum(run + wait for run, wait in threads)
    delayed = sum(wait * others / max(others + ran - run, 1) for run, wait in threads)
    return round(min(ready, elapsed) * delayed / max(ready, 1))


def _busy() -> int:
    """How long this computer's processors have been busy, in nanoseconds; 0 if unknown."""
    try:
        ticks = [int(word) for word in (_PROC / "stat").read_text().split()[1:9]]
    except OSError:
        return 0
    # Fields 4 and 5 are idle time; those after the eighth count again what others have.
    return (sum(ticks) - ticks[3] - ticks[4]) * 10**9 // os.sysconf("SC_CLK_TCK")


def _tree(pid: int, depth: int = 0) -> Iterator[tuple[int, int]]:
    """A process and all below it, each with its depth."""
    yield depth, pid
    for path in (_PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                yield from _tree(int(child), depth + 1)


def _times(pid: int) -> dict[str, list[int]]:
    """The time that each thread of a process has run and has waited for a processor, in
    nanoseconds.
    """
    times = {}
    for path in (_PROC / str(pid) / "task").glob("*/schedstat"):
        # The thread may end.
        with suppress(OSError, ValueError):
            run, wait, _ = path.read_text().split()
            times[path.parent.name] = [int(run), int(wait)]
    return times


def _born(pid: int) -> str:
    """When a process began, so that it is not mistaken for an earlier one; empty if it is gone, 0
    if not on Linux.
    """
    if not _PROC.is_dir():
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return "0"
        return ""
    try:
        # The name, in parentheses, may contain any character.
        return (
            (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""
