"""Which night it is, when it begins, and when it must be over: by the clocks of this computer, through their changes.

Moments are microseconds UTC. A time of day that clocks show twice is the first of the two; one that they skip is the
moment at which they skip it. So begins cron, too, and so no night is left out or begun twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from pricing_data.units import HOUR, MINUTE, SECOND, to_datetime, to_micros
from spotctl.errors import BadRequest
from spotctl.files.job.forms import CLOCK

FIRST_PAUSE, LONGEST_PAUSE = MINUTE, 30 * MINUTE
"""Between attempts where no machine was to be had: twice as long each time."""
PATIENCE = 4 * HOUR
"""How long it is tried where there is no deadline."""
LONGEST_FAREWELL = MINUTE
"""A run is asked to end so long before its deadline: to write a checkpoint and to give everything back."""

_LOCALTIME = Path("/etc/localtime")
_YEAR = 370


@dataclass(frozen=True, slots=True)
class Night:
    """One night: the day on which it begins, its beginning, and its deadline."""

    day: date
    begin: int
    deadline: int | None

    def is_over(self, now: int) -> bool:
        """Whether nothing may be begun any more."""
        return self.last_call is not None and now >= self.last_call

    @property
    def last_call(self) -> int | None:
        """When a run is asked to end, so that it has ended at the deadline."""
        if self.deadline is None:
            return None
        return self.deadline - min(LONGEST_FAREWELL, (self.deadline - self.begin) // 20)

    def pause(self, attempt: int, now: int) -> int | None:
        """How long to wait after so many attempts; None if the night is not long enough for another."""
        length = min(FIRST_PAUSE << min(attempt - 1, 10), LONGEST_PAUSE)
        end = self.begin + PATIENCE if self.last_call is None else self.last_call
        return length if now + length < end else None


@dataclass(frozen=True, slots=True)
class Hours:
    """When nights begin, and when they must be over."""

    at: time
    deadline: time | None = None

    def night(self, now: int, zone: tzinfo) -> Night:
        """The latest night that has begun."""
        today = to_datetime(now).astimezone(zone).date()
        begin = moment_of(today, self.at, zone)
        day = today if begin <= now else today - timedelta(days=1)
        begin = moment_of(day, self.at, zone)
        return Night(day, begin, self._deadline(begin, zone))

    def from_now(self, now: int, zone: tzinfo) -> Night:
        """A night that somebody begins by hand."""
        return Night(to_datetime(now).astimezone(zone).date(), now, self._deadline(now, zone))

    def next_begin(self, now: int, zone: tzinfo) -> int:
        """When the next night begins."""
        return moment_of(_next(now, self.at, zone), self.at, zone)

    def faces(self, now: int, zone: tzinfo) -> tuple[time, ...]:
        """The times of day at which a timer has to look that does nothing on days that skip its time."""
        today = to_datetime(now).astimezone(zone).date()
        days = (today + timedelta(days=ahead) for ahead in range(_YEAR))
        begins = (to_datetime(moment_of(day, self.at, zone)).astimezone(zone) for day in days)
        return tuple(dict.fromkeys([self.at, *(begin.time().replace(fold=0) for begin in begins)]))

    def _deadline(self, begin: int, zone: tzinfo) -> int | None:
        if self.deadline is None:
            return None
        return moment_of(_next(begin, self.deadline, zone), self.deadline, zone)


def moment_of(day: date, at: time, zone: tzinfo) -> int:
    """When clocks show a time on a day."""
    face = datetime.combine(day, at)
    first, second = (to_micros(face.replace(tzinfo=zone, fold=fold).astimezone(UTC)) for fold in (0, 1))
    if first <= second:
        return first
    # Skipped: read by the clocks before it, the time lies after the change, and read by those after it, before.
    return _change(second, first, zone)


def _change(before: int, after: int, zone: tzinfo) -> int:
    """The moment between two at which the clocks change, to the second."""
    old = _offset(before, zone)
    while after - before > SECOND:
        middle = (before + after) // 2 // SECOND * SECOND
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return after


def _offset(moment: int, zone: tzinfo) -> timedelta | None:
    return to_datetime(moment).astimezone(zone).utcoffset()


def _next(now: int, at: time, zone: tzinfo) -> date:
    """The day on which clocks next show a time."""
    today = to_datetime(now).astimezone(zone).date()
    days = [today + timedelta(days=ahead) for ahead in range(3)]
    return next(day for day in days if moment_of(day, at, zone) > now)


def time_of_day(written: str, option: str) -> time:
    """A time as it is given on the command line."""
    if not re.fullmatch(CLOCK, written):
        raise BadRequest(f"{option}: {written!r} is no time of day; allowed is 00:00 to 23:59")
    hour, _, minute = written.partition(":")
    return time(int(hour), int(minute))


def clocks_of_this_computer() -> tuple[tzinfo, str]:
    """The time zone by which timers go, and its name: that of the computer, whatever TZ says in somebody's shell."""
    try:
        with _LOCALTIME.open("rb") as file:
            zone = ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC, "UTC"
    _, found, name = str(_LOCALTIME.resolve()).partition("zoneinfo/")
    return zone, name if found else "local time"


def clock_text(moment: int, zone: tzinfo) -> str:
    """A moment as the clocks show it: `Sat 2026-11-21 02:00`."""
    return f"{to_datetime(moment).astimezone(zone):%a %Y-%m-%d %H:%M}"
