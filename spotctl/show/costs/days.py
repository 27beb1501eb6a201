"""The days of a time zone, and rows of the ledger cut at its midnights. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

from pricing_data.units import to_datetime, to_micros
from spotctl.log.ledger.rows import LedgerRow
from spotctl.show.costs.period import BILLING, cut


def local(at: int, zone: tzinfo) -> datetime:
    """A moment on the clocks of a time zone."""
    moment = to_datetime(at)
    return moment if zone is BILLING else moment.astimezone(zone)


def by_day(rows: Iterable[LedgerRow], zone: tzinfo) -> Iterator[LedgerRow]:
    """The rows, in parts that are each within a day; the parts of a row add up to the row."""
    every = list(rows)
    if not every:
        return
    midnights = _midnights(min(row.begin for row in every), max(row.end for row in every), zone)
    for row in every:
        first, after = bisect_right(midnights, row.begin), bisect_right(midnights, row.end - 1)
        ends = [row.begin, *midnights[first:after], row.end]
        yield from [row] if first >= after else (cut(row, *part) for part in pairwise(ends))


def _midnights(begin: int, end: int, zone: tzinfo) -> list[int]:
    """The beginnings of the days after `begin`, up to `end`. A day that skips its midnight begins at the skip."""
    today = local(begin, zone)
    # The difference of wall clocks, so that a day may have 23 or 25 hours.
    day = datetime(today.year, today.month, today.day, tzinfo=zone)
    midnights: list[int] = []
    while not midnights or midnights[-1] < end:
        day += timedelta(days=1)
        midnights.append(to_micros(day))
    return midnights
