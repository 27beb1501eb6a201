"""The part of a run's cost that was spent within a period of this computer's clock. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from spotctl.log.ledger.rows import LedgerRow
from spotctl.show.costs.run_timeline import RunTimeline

BILLING = UTC
"""The time zone of bills."""


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` to before `until`, in microseconds UTC; None: without that limit. `zone` divides it into days."""

    since: int | None = None
    until: int | None = None
    zone: tzinfo = BILLING


ALWAYS = Period()


def overlaps(first: Period, second: Period) -> bool:
    """Whether two periods have a moment in common."""

    def begins_in_time(period: Period, other: Period) -> bool:
        return period.since is None or other.until is None or period.since <= other.until

    return begins_in_time(first, second) and begins_in_time(second, first)


def part_of(
    run: RunTimeline, rows: Sequence[LedgerRow], period: Period, now: int
) -> tuple[RunTimeline, Sequence[LedgerRow]] | None:
    """A run and its rows within a period; None if the run was not going on then."""
    ended = now if run.wall_ended is None else run.wall_ended
    starts_before = period.since is not None and run.wall_began < period.since
    ends_after = period.until is not None and ended >= period.until
    if not starts_before and not ends_after:
        return run, rows
    since = on_its_clock(run, period.since, now) if starts_before and period.since is not None else None
    until = on_its_clock(run, period.until, now) if ends_after and period.until is not None else None
    kept = list(_within(rows, since, until))
    if not kept and (ended < (period.since or 0) or (period.until is not None and run.wall_began >= period.until)):
        return None
    evictions = tuple(eviction for eviction in run.evictions if _is_within(eviction.at, since, until))
    return replace(run, evictions=evictions, work=None, samples=None, sent=None, received=None, is_cut=True), kept


def on_its_clock(run: RunTimeline, wall: int, now: int) -> int:
    """A moment of this computer's clock on the provider's. A replayed market's runs at its own speed."""
    if not run.is_replayed:
        return wall
    lasted = (now if run.wall_ended is None else run.wall_ended) - run.wall_began
    return run.began + (wall - run.wall_began) * (run.until - run.began) // max(lasted, 1)


def on_this_clock(run: RunTimeline, at: int, now: int) -> int:
    """A moment of the provider's clock on this computer's."""
    if not run.is_replayed:
        return at
    lasted = (now if run.wall_ended is None else run.wall_ended) - run.wall_began
    return run.wall_began + (at - run.began) * lasted // max(run.until - run.began, 1)


def _within(rows: Iterable[LedgerRow], since: int | None, until: int | None) -> Iterator[LedgerRow]:
    for row in rows:
        begin = row.begin if since is None else max(row.begin, since)
        end = row.end if until is None else min(row.end, until)
        if (begin, end) == (row.begin, row.end):
            if row.begin < row.end or _is_within(row.begin, since, until):
                yield row
        elif begin < end:
            yield cut(row, begin, end)


def _is_within(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


def cut(row: LedgerRow, begin: int, end: int) -> LedgerRow:
    """A part of a row; the parts of a row add up to the row."""

    def part(amount: int) -> int:
        length = row.end - row.begin
        return amount * (end - row.begin) // length - amount * (begin - row.begin) // length

    return row._replace(
        begin=begin, end=end, amount=part(row.amount), on_demand=part(row.on_demand), doubtful=part(row.doubtful)
    )
