"""Periods of this computer's clock that a report covers, and the properties by which costs are
grouped. Pure.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, pstdev
from typing import Any

from pricing_data.market import Market
from pricing_data.units import DAY, to_datetime, to_micros
from spotctl.home.errors import BadRequest
from spotctl.log.ledger.account import Eviction, RunTimeline
from spotctl.log.ledger.rows import ChargeKind, LedgerRow

BILLING = UTC
"""The time zone of bills."""


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` to before `until`, in microseconds UTC; None: without that limit. `zone` divides
    it into days.
    """

    since: int | None = None
    until: int | None = None
    zone: tzinfo = BILLING


def overlaps(first: Period, second: Period) -> bool:
    """Whether two periods have a moment in common."""
    pairs = ((first.since, second.until), (second.since, first.until))
    return all(since is None or until is None or since <= until for since, until in pairs)


def part_of(
    run: RunTimeline, rows: Sequence[LedgerRow], period: Period, now: int
) -> tuple[RunTimeline, Sequence[LedgerRow]] | None:
    """A run and its rows within a period; None if the run was not going on then."""
    ended = now if run.wall_ended is None else run.wall_ended
    since = until = None
    if period.since is not None and run.wall_began < period.since:
        since = on_its_clock(run, period.since, now)
    if period.until is not None and ended >= period.until:
        until = on_its_clock(run, period.until, now)
    if since is None and until is None:
        return run, rows

    kept = list[LedgerRow]()
    for row in rows:
        begin = row.begin if since is None else max(row.begin, since)
        end = row.end if until is None else min(row.end, until)
        if (begin, end) == (row.begin, row.end):
            if row.begin < row.end or _is_within(row.begin, since, until):
                kept.append(row)
        elif begin < end:
            kept.append(cut(row, begin, end))

    was_before = period.since is not None and ended < period.since
    comes_after = period.until is not None and run.wall_began >= period.until
    if not kept and (was_before or comes_after):
        return None

    evictions = tuple(each for each in run.evictions if _is_within(each.at, since, until))
    unknown: dict[str, Any] = dict.fromkeys(("work", "samples", "sent", "received"))
    cut_run = replace(run, evictions=evictions, is_cut=True, **unknown)
    return cut_run, kept


def on_its_clock(run: RunTimeline, wall: int, now: int) -> int:
    """A moment of this computer's clock on the provider's. A replayed market's runs at its own
    speed.
    """
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


def _is_within(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


def cut(row: LedgerRow, begin: int, end: int) -> LedgerRow:
    """A part of a row; the parts of a row add up to the row."""
    length, amounts = row.end - row.begin, dict[str, Any]()
    for name in ("amount", "on_demand", "doubtful"):
        whole = getattr(row, name)
        until_end = whole * (end - row.begin) // length
        until_begin = whole * (begin - row.begin) // length
        amounts[name] = until_end - until_begin
    return row._replace(begin=begin, end=end, **amounts)


def local(at: int, zone: tzinfo) -> datetime:
    """A moment on the clocks of a time zone."""
    moment = to_datetime(at)
    if zone is BILLING:
        return moment
    return moment.astimezone(zone)


def by_day(rows: Iterable[LedgerRow], zone: tzinfo) -> Iterator[LedgerRow]:
    """The rows, in parts that are each within a day; the parts of a row add up to the row."""
    every = list(rows)
    if not every:
        return

    # A day that skips its midnight begins at the skip. Days are added by wall clocks, so one may
    # have 23 or 25 hours.
    begin, end = min(row.begin for row in every), max(row.end for row in every)
    today = local(begin, zone)
    day = datetime(today.year, today.month, today.day, tzinfo=zone)
    midnights = list[int]()
    while not midnights or midnights[-1] < end:
        day += timedelta(days=1)
        midnights.append(to_micros(day))

    for row in every:
        first, after = bisect_right(midnights, row.begin), bisect_right(midnights, row.end - 1)
        if first >= after:
            yield row
            continue
        ends = [row.begin, *midnights[first:after], row.end]
        for part in pairwise(ends):
            yield cut(row, *part)


LEARNING_DAYS = 28
"""The rest of a month is forecast from as many days: four weeks, so that all weekdays count
alike."""

_DEVIATIONS_OF_INTERVAL = 1.28
"""Four of five months are within this many standard deviations."""


@dataclass(frozen=True, slots=True)
class Month:
    """A month by this computer's clock (UTC). Amounts are nano-dollar-seconds, the budget is in
    dollars.
    """

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


def month_of(
    runs: Iterable[tuple[RunTimeline, Sequence[LedgerRow]]], now: int, budget: float | None
) -> Month:
    """The month of `now`; the rest of the month is forecast to cost as much a day as the last four
    weeks did.
    """
    today, first = to_datetime(now), first_of_month(now)
    year, months = today.year + today.month // 12, today.month % 12
    end = to_micros(datetime(year, months + 1, 1, tzinfo=UTC))
    oldest = min(first, now - (LEARNING_DAYS + 1) * DAY)
    paid, doubtful, began, days = 0, 0, now, Counter[int]()
    is_least = False

    for run, rows in runs:
        began = min(began, run.wall_began)
        is_least |= run.is_least and (run.wall_ended or now) >= first
        if run.wall_ended is not None and max(run.wall_ended, run.until) < oldest:
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
    more = spread = 0.0
    if daily:
        rest = (end - now) / DAY
        more = fmean(daily) * rest
        spread = pstdev(daily) * _DEVIATIONS_OF_INTERVAL * rest**0.5

    least = max(more - spread, 0.0)
    return Month(
        today.strftime("%Y-%m"),
        paid,
        paid + round(more),
        paid + round(least),
        paid + round(more + spread),
        budget,
        doubtful,
        is_least,
    )


UNTAGGED = "untagged"


class By(StrEnum):
    """A property by which costs are grouped."""

    JOB = "job"
    RUN = "run"
    CLOUD = "cloud"
    REGION = "region"
    TYPE = "type"
    MARKET = "market"
    PRICING = "pricing"
    """Spot, on demand or reserved."""
    KIND = "kind"
    """The kind of charge: machines by pricing, disks, addresses, traffic by destination, refunds,
    corrections."""
    DAY = "day"
    MONTH = "month"
    TAG = "tag"


class TagName(str):
    """A tag by whose values costs are grouped, such as `team`."""

    @property
    def value(self) -> str:
        return str(self)


Grouping = By | TagName

_WHOLE_RUNS = frozenset({By.JOB, By.RUN, By.TAG})

BY_TIME = frozenset({By.DAY, By.MONTH})
"""Groupings that depend on the time zone, and that divide a row which is in several days."""

_SPLIT_BY_PRICING = frozenset({By.TYPE, By.MARKET})
"""Spot and on-demand machines of one type are different things at different prices."""


def keeps_runs_whole(by: Iterable[Grouping]) -> bool:
    """Whether these groupings never split a run, so that its work belongs to one group."""
    return all(isinstance(grouping, TagName) or grouping in _WHOLE_RUNS for grouping in by)


def parse_by(text: str) -> tuple[Grouping, ...]:
    """The grouping in `job,cloud,team`, where `team` names a tag. Types and markets are followed by
    the pricing.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = {by.value: by for by in By}
    if not words:
        raise BadRequest(
            f"--by is empty; give one or more of {', '.join(known)}, or the name of a tag"
        )

    chosen: list[Grouping] = [known.get(word) or TagName(word) for word in words]
    if _SPLIT_BY_PRICING.intersection(chosen):
        chosen.append(By.PRICING)
    return tuple(dict.fromkeys(chosen))


def check_tags(by: Iterable[Grouping], tags: Iterable[Mapping[str, str]]) -> None:
    """BadRequest unless some run has each tag that costs are grouped by; `tags` are those of all
    runs.
    """
    named = sorted({name for of_run in tags for name in of_run})
    known = ", ".join(named) or "no run has any"
    for grouping in by:
        if isinstance(grouping, TagName) and grouping not in named:
            asked, allowed = repr(str(grouping)), ", ".join(By)
            raise BadRequest(
                f"--by: unknown grouping {asked}; allowed are {allowed}, or the name of a tag "
                f"({known}); for example --by job,region"
            )


@dataclass(frozen=True, slots=True)
class Subject:
    """A row or an eviction with its run, or a run alone: all that can be assigned to a group."""

    what: LedgerRow | Eviction | None
    run: RunTimeline
    zone: tzinfo = BILLING
    """The time zone of days and months."""

    @property
    def market(self) -> Market:
        assert self.what is not None, "a run alone has no market and no time"
        return self.what.market

    @property
    def at(self) -> int:
        assert self.what is not None, "a run alone has no market and no time"
        if isinstance(self.what, LedgerRow):
            return self.what.begin
        return self.what.at

    @property
    def pricing(self) -> str:
        """Only spot machines are evicted."""
        return self.market.pricing(spot=not isinstance(self.what, LedgerRow) or self.what.spot)

    @property
    def kind(self) -> str:
        charged = self.what.kind if isinstance(self.what, LedgerRow) else ChargeKind.COMPUTE
        if charged is ChargeKind.COMPUTE:
            return f"{self.pricing} machines"
        if not isinstance(self.what, LedgerRow) or not self.what.target:
            return _KINDS[charged]
        # How far traffic went decides its price.
        cloud = self.what.target.partition("/")[0]
        return f"{_KINDS[charged]} to another {'region' if cloud == self.market.cloud else 'cloud'}"


_KINDS = {
    ChargeKind.REFUND: "refunds",
    ChargeKind.DISK: "disks",
    ChargeKind.ADDRESS: "addresses",
    ChargeKind.EGRESS: "traffic",
    ChargeKind.CORRECTION: "corrections",
    ChargeKind.UNKNOWN: "unknown",
}

_ATTRIBUTES = {
    By.JOB: attrgetter("run.job"),
    By.RUN: attrgetter("run.run"),
    By.CLOUD: attrgetter("market.cloud"),
    By.REGION: attrgetter("market.region"),
    By.TYPE: attrgetter("market.instance_type"),
    By.MARKET: attrgetter("market"),
    By.PRICING: attrgetter("pricing"),
    By.KIND: attrgetter("kind"),
}


def key_of(by: Sequence[Grouping], subject: Subject) -> tuple[str, ...]:
    """The values of a subject, in the order of the grouping."""
    tags, values = subject.run.tags, list[str]()
    for grouping in by:
        if isinstance(grouping, TagName):
            value = tags.get(grouping, UNTAGGED)
        elif grouping is By.TAG:
            value = ", ".join(f"{name}={tag}" for name, tag in sorted(tags.items())) or UNTAGGED
        elif grouping in BY_TIME:
            # By the provider's clock, as in bills.
            moment = local(subject.at, subject.zone)
            value = moment.strftime("%Y-%m-%d" if grouping is By.DAY else "%Y-%m")
        else:
            value = str(_ATTRIBUTES[grouping](subject))
        values.append(value)

    return tuple(values)
