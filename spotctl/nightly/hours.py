"""When a night begins and ends, by the local time of this computer and across changes to and from
summer time; and what a start does in it, from the state that it finds.

Moments are microseconds UTC. A time of day that occurs twice means its first occurrence; one that
is skipped means the moment of the change. Cron does the same. So no night is skipped or started
twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pricing_data.units import HOUR, MINUTE, SECOND, to_datetime, to_micros
from spotctl.files.job.conversions import CLOCK
from spotctl.home.errors import BadRequest
from spotctl.log.events import StopRequested
from spotctl.log.outcomes import NOT_IN_TIME, STOPPED

if TYPE_CHECKING:
    from spotctl.log.state import RunState

FIRST_PAUSE, LONGEST_PAUSE = MINUTE, 30 * MINUTE
"""Between attempts without capacity; doubled each time."""
LONGEST_RETRY = 4 * HOUR
"""How long a night without a deadline retries."""
LONGEST_SHUTDOWN = MINUTE
"""How long before the deadline a run is stopped, to write a checkpoint and return all machines."""

_LOCALTIME = Path("/etc/localtime")
_DAYS_SEARCHED = 370


@dataclass(frozen=True, slots=True)
class Night:
    """A night: the day on which it begins, its begin and its deadline."""

    day: date
    begin: int
    deadline: int | None

    def is_over(self, now: int) -> bool:
        """Whether it is too late to start anything."""
        return self.stop_at is not None and now >= self.stop_at

    @property
    def stop_at(self) -> int | None:
        """When a run is stopped so that it has ended by the deadline."""
        if self.deadline is None:
            return None
        return self.deadline - min(LONGEST_SHUTDOWN, (self.deadline - self.begin) // 20)

    def pause(self, attempt: int, now: int) -> int | None:
        """How long to wait after attempt number `attempt`; None if there is no time for another
        one.
        """
        length = min(FIRST_PAUSE << min(attempt - 1, 10), LONGEST_PAUSE)
        end = self.begin + LONGEST_RETRY if self.stop_at is None else self.stop_at
        return length if now + length < end else None


@dataclass(frozen=True, slots=True)
class Hours:
    """The times of day at which nights begin and must be over."""

    at: time
    deadline: time | None = None

    def night(self, now: int, zone: tzinfo) -> Night:
        """The latest night that has begun by `now`."""
        today = to_datetime(now).astimezone(zone).date()
        begin = moment_of(today, self.at, zone)
        day = today if begin <= now else today - timedelta(days=1)
        begin = moment_of(day, self.at, zone)
        return Night(day, begin, self._deadline(begin, zone))

    def from_now(self, now: int, zone: tzinfo) -> Night:
        """A night that is started by hand."""
        return Night(to_datetime(now).astimezone(zone).date(), now, self._deadline(now, zone))

    def next_begin(self, now: int, zone: tzinfo) -> int:
        return moment_of(_next(now, self.at, zone), self.at, zone)

    def timer_times(self, now: int, zone: tzinfo) -> tuple[time, ...]:
        """`at`, and the times at which nights begin on days that skip `at`: systemd does not fire
        on such days.
        """
        today = to_datetime(now).astimezone(zone).date()
        times = [self.at]
        for ahead in range(_DAYS_SEARCHED):
            begins = moment_of(today + timedelta(days=ahead), self.at, zone)
            begin = to_datetime(begins).astimezone(zone).time().replace(fold=0)
            if begin not in times:
                times.append(begin)
        return tuple(times)

    def _deadline(self, begin: int, zone: tzinfo) -> int | None:
        if self.deadline is None:
            return None
        return moment_of(_next(begin, self.deadline, zone), self.deadline, zone)


def moment_of(day: date, at: time, zone: tzinfo) -> int:
    """The moment of a local time on a day."""
    local = datetime.combine(day, at)
    first = to_micros(local.replace(tzinfo=zone, fold=0).astimezone(UTC))
    second = to_micros(local.replace(tzinfo=zone, fold=1).astimezone(UTC))
    if first <= second:
        return first

    # Skipped: with the old offset the time is after the change of the offset, and with the new one
    # before it. The change itself, to the second, lies between them.
    before = second
    after = first
    old = to_datetime(before).astimezone(zone).utcoffset()
    while after - before > SECOND:
        middle = (before + after) // 2 // SECOND * SECOND
        if to_datetime(middle).astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


def _next(now: int, at: time, zone: tzinfo) -> date:
    """The day on which a time of day comes next."""
    today = to_datetime(now).astimezone(zone).date()
    days = [today + timedelta(days=ahead) for ahead in range(3)]
    return next(day for day in days if moment_of(day, at, zone) > now)


def time_of_day(text: str, option: str) -> time:
    """Parses a time of day from the command line."""
    if not re.fullmatch(CLOCK, text):
        raise BadRequest(f"{option}: {text!r} is not a time of day (00:00 to 23:59)")
    hour, _, minute = text.partition(":")
    return time(int(hour), int(minute))


def local_zone() -> tuple[tzinfo, str]:
    """The time zone of this computer, which timers use even if TZ is set in a shell, and its
    name."""
    try:
        with _LOCALTIME.open("rb") as file:
            zone = ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC, "UTC"
    _, separator, name = str(_LOCALTIME.resolve()).partition("zoneinfo/")
    return zone, name if separator else "local time"


def day_of(moment: int, zone: tzinfo) -> date:
    return to_datetime(moment).astimezone(zone).date()


def clock_text(moment: int, zone: tzinfo) -> str:
    """A moment in local time: `Sat 2026-11-21 02:00`."""
    return f"{to_datetime(moment).astimezone(zone):%a %Y-%m-%d %H:%M}"


CANNOT_RESUME = StopRequested(STOPPED, "the computer was restarted, so the run cannot be resumed")
TOO_LATE = StopRequested(NOT_IN_TIME, "the deadline came before the job was done")


class NightStep(Enum):
    """The action of a start."""

    LAUNCH = auto()
    RESUME = auto()
    """The process of the run was killed: resume the run."""
    REPLACE = auto()
    """The run cannot be resumed: return its machines and launch another."""
    CLOSE = auto()
    """It is too late to resume the run: return its machines."""
    REPORT = auto()
    """A run has ended, but its message was not sent."""
    MISSED = auto()
    """The night is over, and nothing was started."""
    SKIP = auto()
    """This night's run was already reported."""


def runs_since(runs: Sequence[RunState], since: int) -> list[RunState]:
    """The runs that began at `since` (microseconds UTC) or later."""
    return [run for run in runs if run.began is not None and run.began.wall_us >= since]
