"""When a command leaves spot machines for such that nobody takes, and when it comes back. Pure.

Spot is dear when little of it lasts: what is taken before a checkpoint has to be done again. A job goes where an hour
of lasting work costs less, and after a while, longer each time, looks whether it has become calm.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing_data.units import HOUR

WINDOW = 2 * HOUR
TIMES = 3
"""Fewer evictions within the window are bad luck."""

FIRST_REFUGE, LONGEST_REFUGE = HOUR, 8 * HOUR


@dataclass(frozen=True, slots=True)
class Record:
    """How a job has fared: when spot machines were taken from it, and when it has gone on demand instead.

    `paid` is its time on spot machines within the window, and `lasting` how much of that is safe, both in microseconds.
    `resumes` says that it goes on from a checkpoint when it is moved.
    """

    taken: tuple[int, ...] = ()
    refuges: tuple[int, ...] = ()
    paid: int = 0
    lasting: int = 0
    resumes: bool = True

    @property
    def lasting_share(self) -> float:
        """How much of the time on spot was not in vain."""
        return self.lasting / self.paid if self.paid else 0.0


def why_leave(record: Record, price_share: float, now: int) -> str:
    """Why spot is not worth its price now, or nothing; `price_share` is its price as a share of that on demand."""
    since = max([now - WINDOW, *record.refuges])
    times = sum(at > since for at in record.taken)
    if times < TIMES or record.lasting_share > price_share:
        return ""
    return (
        f"spot keeps failing: {times} evictions in {WINDOW / HOUR:g} hours, {record.lasting_share:.0%} of the paid time"
        f" was useful, at {price_share:.0%} of the on-demand price"
    )


def until(record: Record) -> int | None:
    """To when a refuge is kept, twice as long each time; None for a job that has taken none."""
    if not record.refuges or not record.taken:
        return None
    times = len(record.refuges)
    return record.refuges[-1] + min(FIRST_REFUGE << min(times - 1, 8), LONGEST_REFUGE)
