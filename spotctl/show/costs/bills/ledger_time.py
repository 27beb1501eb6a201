"""The ledger's amounts by time, and sets of time. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spotctl.log.ledger.rows import LedgerRow

TimeSpanUs = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LedgerTime:
    """The rows of a machine. The amount of a row accrues evenly over its time, or at once if it has no length."""

    rows: Sequence[LedgerRow]
    excluded: tuple[TimeSpanUs, ...] = ()

    @property
    def amount(self) -> int:
        """The sum of the rows without the excluded time."""
        return sum(row.amount for row in self.rows) - sum(self.between(*interval) for interval in self.excluded)

    def without(self, intervals: tuple[TimeSpanUs, ...]) -> "LedgerTime":
        """These rows, with some time excluded."""
        return LedgerTime(self.rows, intervals)

    def between(self, begin: int, end: int) -> int:
        """The amount that accrued in an interval."""
        return sum(_accrued(row, begin, end) for row in self.rows)

    def covered(self) -> tuple[TimeSpanUs, ...]:
        """The time that the rows cover, without the excluded time."""
        return minus(union((row.begin, max(row.end, row.begin + 1)) for row in self.rows), self.excluded)


def _accrued(row: LedgerRow, begin: int, end: int) -> int:
    if row.begin == row.end:
        # A charge for time after the end of a machine belongs to the period in which the machine ended.
        return row.amount if begin < row.end <= end else 0
    since, until = max(begin, row.begin), min(end, row.end)
    return row.amount * (until - since) // (row.end - row.begin) if since < until else 0


def union(intervals: Iterable[TimeSpanUs]) -> tuple[TimeSpanUs, ...]:
    joined: list[TimeSpanUs] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def minus(intervals: Iterable[TimeSpanUs], removed: Sequence[TimeSpanUs]) -> tuple[TimeSpanUs, ...]:
    """The parts of `intervals` outside `removed`, which is sorted and disjoint."""
    rest: list[TimeSpanUs] = []
    for begin, end in intervals:
        at = begin
        for since, until in removed:
            if until <= at or since >= end:
                continue
            if at < since:
                rest.append((at, since))
            at = max(at, until)
        if at < end:
            rest.append((at, end))
    return tuple(rest)
