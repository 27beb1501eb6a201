"""The cost of the present month, its forecast and its budget. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, pstdev

from pricing_data.units import DAY, to_datetime, to_micros
from spotctl.log.ledger.rows import LedgerRow
from spotctl.show.costs.period import on_this_clock
from spotctl.show.costs.run_timeline import RunTimeline

LEARNING_DAYS = 28
"""The rest of a month is forecast from as many days: four weeks, so that all weekdays count alike."""

_DEVIATIONS_OF_INTERVAL = 1.28
"""Four of five months are within this many standard deviations."""


@dataclass(frozen=True, slots=True)
class Month:
    """A month by this computer's clock (UTC). Amounts are nano-dollar-seconds, the budget is in dollars."""

    name: str
    paid: int
    forecast: int
    low: int
    high: int
    budget: float | None = None


def month_of(runs: Iterable[tuple[RunTimeline, Sequence[LedgerRow]]], now: int, budget: float | None) -> Month:
    """The month of `now`; the rest of the month is forecast to cost as much a day as the last four weeks did."""
    today = to_datetime(now)
    first = to_micros(datetime(today.year, today.month, 1, tzinfo=UTC))
    end = to_micros(datetime(today.year + today.month // 12, today.month % 12 + 1, 1, tzinfo=UTC))
    paid, began, days = 0, now, Counter[int]()
    for run, rows in runs:
        began = min(began, run.wall_began)
        if run.wall_ended is not None and max(run.wall_ended, run.until) < min(first, now - (LEARNING_DAYS + 1) * DAY):
            # Its rows, which may have to be read for this, are all older.
            continue
        for row in rows:
            at = on_this_clock(run, row.begin, now)
            if first <= at < end:
                paid += row.amount
            # Counted back from now, so that only the part of today that is over counts.
            days[(now - at) // DAY] += row.amount
    learned = min(LEARNING_DAYS, -(-(now - began) // DAY))
    daily = [days[day] for day in range(learned)]
    rest = (end - now) / DAY
    more, spread = (fmean(daily) * rest, pstdev(daily) * _DEVIATIONS_OF_INTERVAL * rest**0.5) if daily else (0.0, 0.0)
    return Month(
        today.strftime("%Y-%m"),
        paid,
        paid + round(more),
        paid + round(max(more - spread, 0.0)),
        paid + round(more + spread),
        budget,
    )
