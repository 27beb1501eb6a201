"""The contract between a source of market data and the fetch that drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol, TypeVar

from pricing_data.errors import BadInput, CloudError, IncompleteAnswer
from pricing_data.units import DAY, Span

if TYPE_CHECKING:
    from pricing_data.fetched_rows import FetchedRows

NO_REGION = "-"
"""The region of a task that belongs to none, such as a global price file or a sign-in that
failed."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The rows to fetch: empty `regions` means every region the account may use, empty `types`
    every type.

    `types` are globs (`c6i.*`), `systems` operating systems as markets name them; empty means all.
    The history to fetch runs from `since` to `until` (microseconds UTC); `covered` says which spans
    the store already has.
    """

    since: int
    until: int
    regions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    covered: Mapping[str, Span] = field(default_factory=dict)

    def wants_type(self, name: str) -> bool:
        return not self.types or any(fnmatchcase(name, glob) for glob in self.types)

    def wants_system(self, os: str) -> bool:
        """Whether an operating system is requested; VPC is a network, not a system."""
        return not self.systems or os.removesuffix("-vpc") in self.systems

    def history(self, cloud: str, region: str) -> str:
        """The key of a region's history in `covered`; a history of some types or systems has a key
        of its own.
        """
        systems = (f"os={','.join(sorted(self.systems))}",) if self.systems else ()
        return " ".join((f"{cloud}/{region}", *systems, *sorted(self.types)))

    def start_of(self, history: str) -> int:
        """Where fetching a history begins: at `since`, or at the end of an earlier fetch that began
        no later.
        """
        covered = self.covered.get(history)
        if covered and covered.start <= self.since:
            return max(covered.end, self.since)
        return self.since


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One part of a fetch that succeeds or fails by itself: a region's history, a price list.

    `spot_prices` marks a task that brings prices of spot markets, which change all the time.
    `optional` marks a task without which all current prices still come.

    `pull` runs in its own thread and yields rows as they arrive; rows yielded before a failure are
    kept. It raises `CloudError` and nothing else.
    """

    cloud: str
    region: str
    what: str
    pull: Callable[[], Iterator[FetchedRows]]
    spot_prices: bool = False
    optional: bool = False

    @classmethod
    def failed(
        cls, cloud: str, what: str, error: CloudError, *, optional: bool = False
    ) -> FetchTask:
        """A task of no region that reports an error which stopped a whole source."""

        def pull() -> Iterator[FetchedRows]:
            raise error

        return cls(cloud, NO_REGION, what, pull, optional=optional)


class Source(Protocol):
    """One cloud. Constructing it contacts nothing and imports no SDK."""

    cloud: str

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """The parts of a fetch. May ask the cloud for its regions, and raises as `FetchTask.pull`
        does.
        """


@dataclass(frozen=True, slots=True)
class SourceNeeds:
    """One part of a source: `needs` is empty where no account is needed."""

    cloud: str
    """The cloud."""
    what: str
    """The data."""
    needs: str
    """The account or credentials needed; empty if none are."""
    note: str = ""
    """Where the data comes from, and what it is used for."""


FILES = SourceNeeds("files", "histories, price lists, snapshots", "", "prices import")


@dataclass(frozen=True, slots=True)
class Effort:
    """About how much one task asks for in a region, for all types and Linux only: an order of
    magnitude.

    Calls, rows that are kept, and megabytes that are sent; of histories (`is_daily`) per day. A
    public list is sent as a whole (`is_whole`), however few of its types are wanted.
    """

    calls: float = 1
    rows: float = 0
    megabytes: float = 0.1
    is_daily: bool = False
    is_whole: bool = False


_CALLS_PER_SECOND = 5
_MEGABYTES_PER_SECOND = 5
BYTES_PER_ROW = 8
"""About how much the store grows by a row."""


def effort(tasks: Iterable[Effort], span: int, *, some_types: bool) -> Effort:
    """The effort of tasks together, for a history of this length."""
    total_calls = total_rows = total_megabytes = 0.0
    for task in tasks:
        shares = list[float]()
        if task.is_daily:
            shares.append(max(1.0, span / DAY))
        if some_types and not task.is_whole:
            shares.append(0.1)

        calls, rows, megabytes = task.calls, task.rows, task.megabytes
        for share in shares:
            # A task takes a call, however little it asks for.
            calls = max(1.0, calls * share)
            rows *= share
            megabytes *= share
        total_calls += calls
        total_rows += rows
        total_megabytes += megabytes

    return Effort(total_calls, total_rows, total_megabytes)


def minutes(total: Effort, workers: int) -> float:
    """About how long it takes."""
    reading = total.megabytes / _MEGABYTES_PER_SECOND
    waiting = total.calls / _CALLS_PER_SECOND / max(workers, 1) + reading
    return waiting / 60


R = TypeVar("R")
T = TypeVar("T")

_LONGEST_NAME = 200
_LONGEST_EXAMPLE = 400


@dataclass(slots=True)
class Rejects:
    """The records of an answer that were left out: how many, and the first one with its reason.

    `subject` says what was requested, for the error message.
    """

    subject: str
    count: int = field(default=0, init=False)
    example: str = field(default="", init=False)

    def add(self, reason: object) -> None:
        """Counts one more; the first reason becomes the example."""
        self.count += 1
        self.example = self.example or _line(reason, _LONGEST_EXAMPLE)

    def good(
        self,
        read: Callable[[R], T | None],
        records: Iterable[R],
        name_of: Callable[[R], object] = str,
    ) -> Iterator[T]:
        """Calls `read` with each record, and yields the results that are not None.

        Records that `read` rejects with `BadInput` are counted; `name_of` names such a record in
        the example.
        """
        for record in records:
            try:
                row = read(record)
            except BadInput as error:
                self.add(f"{_line(name_of(record), _LONGEST_NAME)}: {error}")
            else:
                if row is not None:
                    yield row

    def report(self) -> None:
        """Raises if any record was left out; call it after yielding the good rows."""
        if self.count:
            records = "1 record"
            if self.count != 1:
                records = f"{self.count} records"
            raise IncompleteAnswer(
                f"{self.subject}: {records} left out, the others were kept; first: {self.example}",
                "the next fetch retries them",
            )


def _line(text: object, longest: int) -> str:
    line = " ".join(str(text).split())
    if len(line) <= longest:
        return line
    return f"{line[:longest]}..."
