"""The cost of the present month, its forecast and its budget. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    doubtful: int = 0
    """Part of what is paid that only counts because the end of machines is not known."""
    is_least: bool = False
    """Whether there are costs that no row has."""
    tag: str = ""
    """The tag of its runs, as in `user=ada`; empty if the month is that of all runs."""


def first_of_month(at: int) -> int:
    """The beginning of the month of a moment."""
    day = to_datetime(at)
    return to_micros(datetime(day.year, day.month, 1, tzinfo=UTC))


def months_of_tags(
    runs: Sequence[tuple[RunTimeline, Sequence[LedgerRow]]], now: int, budgets: Mapping[str, float]
) -> tuple[Month, ...]:
    """The month of each tag that has a budget, next to that budget."""
    months = []
    for tag, budget in budgets.items():
        name, _, value = tag.partition("=")
        tagged = [(run, rows) for run, rows in runs if run.tags.get(name) == value]
        months.append(replace(month_of(tagged, now, budget), tag=tag))
    return tuple(months)


def month_of(runs: Iterable[tuple[RunTimeline, Sequence[LedgerRow]]], now: int, budget: float | None) -> Month:
    """The month of `now`; the rest of the month is forecast to cost as much a day as the last four weeks did."""
    today = to_datetime(now)
    first = first_of_month(now)
    end = to_micros(datetime(today.year + today.month // 12, today.month % 12 + 1, 1, tzinfo=UTC))
    paid, doubtful, began, days = 0, 0, now, Counter[int]()
    is_least = False
    for run, rows in runs:
        began = min(began, run.wall_began)
        is_least |= run.is_least and (run.wall_ended or now) >= first
        if run.wall_ended is not None and max(run.wall_ended, run.until) < min(first, now - (LEARNING_DAYS + 1) * DAY):
            # Its rows, which may have to be read for this, are all older.
            continue
        for row in rows:
            at = on_this_clock(run, row.begin, now)
            if first <= at < end:
                paid += row.amount
                doubtful += row.doubtful
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
        doubtful,
        is_least,
    )
