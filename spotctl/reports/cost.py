"""What runs cost: sums over the rows of the ledger, as a whole and by any grouping, exact until they are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR, to_datetime
from spotctl.errors import BadRequest
from spotctl.ledger.rows import Kind, Row, Use
from spotctl.reports.run_timeline import Eviction, RunTimeline

WAITING = frozenset({Use.STARTING, Use.LOADING, Use.IDLE})
"""What is paid though nothing is worked: machines start, load, and are there before others or after the end."""

BESIDE = frozenset({Kind.DISK, Kind.ADDRESS, Kind.EGRESS})
"""What is charged beside the time of machines."""

UNTAGGED = "untagged"


class By(Enum):
    """What costs are grouped by."""

    JOB = "job"
    RUN = "run"
    CLOUD = "cloud"
    REGION = "region"
    TYPE = "type"
    MARKET = "market"
    DAY = "day"
    TAG = "tag"


_WHOLE_RUNS = frozenset({By.JOB, By.RUN, By.TAG})
"""Groupings that leave a run in one piece, so that its work belongs to one group."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over rows, in nano-dollar-seconds; `work` is None where it is unknown or of several kinds."""

    total: int
    on_demand: int
    free: int
    uses: Mapping[Use, int]
    besides: int
    """Of the total: disks, addresses and traffic."""
    unsettled: int
    """Of the total: what belongs to machines that still run."""
    machine_micros: int
    evictions: int
    runs: int
    going_on: int
    work: int | None

    @property
    def lost_work(self) -> int:
        """Paid for work that an eviction undid."""
        return self.uses.get(Use.REDONE, 0)

    @property
    def waiting(self) -> int:
        """Paid for machines that did not work."""
        return sum(self.uses.get(use, 0) for use in WAITING)

    @property
    def saved(self) -> int:
        """What on-demand machines would have cost more."""
        return self.on_demand - self.total

    @property
    def saved_pct(self) -> float | None:
        """The same in percent of on-demand; None where nothing was used."""
        return round(100 * self.saved / self.on_demand, 4) if self.on_demand else None

    @property
    def usd_per_work(self) -> float | None:
        """Dollars per unit of work; None where there is none."""
        return usd(self.total) / self.work if self.work else None


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of what shares the values of a grouping."""

    key: Mapping[By, str]
    figures: Figures


@dataclass(frozen=True, slots=True)
class RunCost:
    """A run with its figures."""

    story: RunTimeline
    figures: Figures


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked for: the whole, its groups, and what it rests on."""

    whole: Figures
    by: tuple[By, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    stories: tuple[RunTimeline, ...]
    made_at: int
    history: tuple[RunCost, ...]
    """All runs of these jobs that the log holds, as they began, those included that the report is not about."""

    @property
    def is_replayed(self) -> bool:
        """Whether all of it happened on a replayed market, where nothing is paid."""
        return all(story.is_replayed for story in self.stories)

    def of_run(self, run: str) -> tuple[Row, ...]:
        """The rows of one run."""
        return tuple(row for row in self.rows if row.run == run)


def usd(amount: int) -> float:
    """Dollars of nano-dollar-seconds, to the nano-dollar: so groups that are shown add up to a whole that is shown."""
    return round(Fraction(amount, 3600)) / NANOS_PER_DOLLAR


def parse_by(text: str) -> tuple[By, ...]:
    """`job,cloud` as a grouping."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = {by.value: by for by in By}
    for word in words:
        if word not in known:
            raise BadRequest(f"--by {text}: {word!r} is none of {', '.join(known)} (write --by job,region)")
    if not words:
        raise BadRequest(f"--by names no grouping; give one or more of {', '.join(known)}")
    return tuple(dict.fromkeys(known[word] for word in words))


def report(
    rows: Sequence[Row], stories: Sequence[RunTimeline], runs: Collection[str], by: Sequence[By], at: int
) -> Report:
    """The report on some runs, from the rows and stories of all: the others of the same jobs are their history."""
    shown = tuple(story for story in stories if story.run in runs)
    chosen = tuple(row for row in rows if row.run in runs)
    jobs = {story.job for story in shown}
    rows_of: dict[str, list[Row]] = {story.run: [] for story in stories}
    for row in rows:
        rows_of[row.run].append(row)
    history = tuple(RunCost(story, figures(rows_of[story.run], (story,))) for story in stories if story.job in jobs)
    return Report(figures(chosen, shown), tuple(by), groups(chosen, shown, by), chosen, shown, at, history)


def groups(rows: Sequence[Row], stories: Sequence[RunTimeline], by: Sequence[By]) -> tuple[Group, ...]:
    """Rows by the values of a grouping, in the order of these values."""
    of = {story.run: story for story in stories}
    found: dict[tuple[str, ...], tuple[list[Row], list[Eviction], dict[str, RunTimeline]]] = {}
    whole = _WHOLE_RUNS.issuperset(by)
    if whole:
        # A run that got no machine has no row, and belongs to its group for all that.
        for story in stories:
            found.setdefault(_key(by, _Subject(None, story)), ([], [], {}))[2][story.run] = story
    for row in rows:
        story = of[row.run]
        there = found.setdefault(_key(by, _Subject(row, story)), ([], [], {}))
        there[0].append(row)
        there[2][story.run] = story
    for story in stories:
        for eviction in story.evictions:
            there = found.setdefault(_key(by, _Subject(eviction, story)), ([], [], {}))
            there[1].append(eviction)
            there[2][story.run] = story
    return tuple(
        Group(
            dict(zip(by, key, strict=True)),
            _figures(there[0], tuple(there[2].values()), len(there[1]), whole=whole),
        )
        for key, there in sorted(found.items())
    )


def figures(rows: Sequence[Row], stories: Sequence[RunTimeline]) -> Figures:
    """The figures of runs."""
    return _figures(rows, stories, sum(len(story.evictions) for story in stories), whole=True)


def _figures(rows: Sequence[Row], stories: Sequence[RunTimeline], evictions: int, *, whole: bool) -> Figures:
    uses = dict.fromkeys(Use, 0)
    besides = 0
    for row in rows:
        if row.kind in BESIDE:
            besides += row.amount
        else:
            uses[row.use] += row.amount
    return Figures(
        total=sum(row.amount for row in rows),
        on_demand=sum(row.on_demand for row in rows),
        free=-sum(row.amount for row in rows if row.kind is Kind.REFUND),
        uses=uses,
        besides=besides,
        unsettled=sum(row.amount for row in rows if not row.settled),
        machine_micros=sum(row.end - row.begin for row in rows if row.kind is Kind.COMPUTE),
        evictions=evictions,
        runs=len(stories),
        going_on=sum(story.goes_on for story in stories),
        work=_work(stories) if whole else None,
    )


def _work(stories: Sequence[RunTimeline]) -> int | None:
    """Work adds up over runs of one job. A clock of another job is another amount of work."""
    counts = [story.work for story in stories]
    if len({story.job for story in stories}) != 1 or None in counts:
        return None
    return sum(count for count in counts if count is not None)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What belongs to a group: a row or an eviction, with its run."""

    what: Row | Eviction | None
    story: RunTimeline

    @property
    def market(self) -> Market:
        assert self.what is not None, "only what a run is grouped by as a whole is asked of runs"
        return self.what.market

    @property
    def at(self) -> int:
        assert self.what is not None, "only what a run is grouped by as a whole is asked of runs"
        return self.what.begin if isinstance(self.what, Row) else self.what.at


_VALUES: Mapping[By, Callable[[_Subject], str]] = {
    By.JOB: lambda one: one.story.job,
    By.RUN: lambda one: one.story.run,
    By.CLOUD: lambda one: one.market.cloud,
    By.REGION: lambda one: one.market.region,
    By.TYPE: lambda one: one.market.instance_type,
    By.MARKET: lambda one: str(one.market),
    # On the provider's clock, as bills have it. A row belongs to the day on which it begins.
    By.DAY: lambda one: to_datetime(one.at).date().isoformat(),
    By.TAG: lambda one: ", ".join(f"{k}={v}" for k, v in sorted(one.story.tags.items())) or UNTAGGED,
}


def _key(by: Sequence[By], one: _Subject) -> tuple[str, ...]:
    return tuple(_VALUES[each](one) for each in by)
