"""Brings market data into the store: files, batch by batch with every row counted, and what clouds
answer, from several sources in parallel, so that a failure of one does not affect the others."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Full, Queue
from threading import Event

import numpy as np

from pricing_data.errors import BadInput, CloudError, StoreError
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.market import is_region_of
from pricing_data.series import Recording
from pricing_data.snapshots import read as read_snapshot
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask, Source
from pricing_data.sources.files import BadRow, FileBatch, read
from pricing_data.store import Committed, PriceStore
from pricing_data.units import DAY, counted

_SNAPSHOT = "snapshot"
# All bad rows are counted; each is named, up to a number that still fits into memory.
MAX_NAMED = 100_000


@dataclass(slots=True)
class FileReport:
    """Counts of a file's rows: used, skipped, bad. `failure` says why the file was rejected, or not
    read to its end.

    `broken` is the store's error; what was committed before it is kept and counted. `file` is its
    path or address.
    """

    file: str
    layout: str = ""
    rows: int = 0
    committed: Committed = field(default_factory=Committed)
    facts: int = 0
    skipped: int = 0
    bad: list[BadRow] = field(default_factory=list)
    unused: tuple[str, ...] = ()
    failure: str | None = None
    broken: StoreError | None = None

    @property
    def usable(self) -> int:
        """The number of rows that were used, even if the store knew them already."""
        done = self.committed
        return done.added + done.known + done.conflicts + self.facts

    def count(self, batch: FileBatch) -> None:
        self.layout = batch.layout
        self.rows += batch.rows
        self.skipped += len(batch.bad)
        self.bad += batch.bad[: MAX_NAMED - len(self.bad)]
        self.unused = batch.unused


def unwatched(_: object) -> None:
    """For callers that watch no progress."""


def ingest(
    store: PriceStore,
    path: Path,
    *,
    strict: bool = False,
    layout: str | None = None,
    on_progress: Callable[[int], None] = unwatched,
) -> FileReport:
    """Imports a file into the store. Bad rows are counted and skipped; `strict` rejects a file that
    has any.

    Each batch is committed by itself: a long import that is killed keeps what it committed, and
    running it again adds the rest. A strict import is committed whole or not at all. `layout` is
    the kind of table the file must contain.
    """
    report = FileReport(str(path))
    waiting: list[FetchedRows] = []
    recording = Recording()
    try:
        for batch in read(path, time.time_ns() // 1000 + DAY):
            if layout is not None and batch.layout != layout:
                raise BadInput(f"contains {batch.layout}, not {layout}")
            report.count(batch)
            recording.add(
                batch.fetched.prices.markets, batch.fetched.prices.codes, batch.fetched.prices.times
            )
            if strict:
                waiting.append(batch.fetched)
            else:
                _commit(store, batch.fetched, report)
            on_progress(batch.position)
    except BadInput as error:
        report.failure = str(error)
    except StoreError as error:
        report.broken = error

    waiting.append(FetchedRows(watched=recording.watched()))
    if strict and report.failure is None and report.skipped:
        report.failure = (
            f"was rejected: {counted(report.skipped, 'bad row')}, the first in {report.bad[0]}"
        )

    if report.broken is None and not (strict and report.failure):
        try:
            _commit(store, FetchedRows.joined(waiting), report)
        except StoreError as error:
            report.broken = error

    if report.failure is None and report.broken is None and not report.usable:
        bad = counted(report.skipped, "bad row")
        report.failure = f"no row was imported: {bad}" if report.rows else "contains no rows"

    return report


def ingest_snapshot(store: PriceStore, path: Path) -> FileReport:
    """Imports a snapshot into the store. It has no rows to skip: it is imported whole or
    refused."""
    report = FileReport(str(path), layout=_SNAPSHOT)
    try:
        snapshot = read_snapshot(path)
        report.rows = len(snapshot.table)
        report.unused = ("signature",) if snapshot.is_signed else ()
        prices = snapshot.table.batch()
        fetched = FetchedRows(prices=prices, watched=snapshot.table.watched)
        _commit(store, fetched, report)
    except BadInput as error:
        report.failure = str(error)
    except StoreError as error:
        report.broken = error

    return report


def _commit(store: PriceStore, fetched: FetchedRows, report: FileReport) -> None:
    if len(fetched) or fetched.watched:
        report.committed += store.commit(fetched)
    report.facts += len(fetched) - len(fetched.prices)


# Pages are small; committing each by itself would fill the store with tiny files.
_COMMIT_ROWS = 50_000
# How many steps may wait for the store; a source that is faster than the disk is slowed down here.
_QUEUE_LENGTH = 64
_STOP_CHECK_SECONDS = 0.2


@dataclass(slots=True)
class TaskReport:
    """The result of one task of a fetch. `failure` is None if it succeeded; `notes` say where its
    rows are from."""

    cloud: str
    region: str
    what: str
    committed: Committed = field(default_factory=Committed)
    facts: int = 0
    done: bool = False
    failure: CloudError | None = None
    optional: bool = False
    notes: tuple[str, ...] = ()


_Arrived = FetchedRows | BaseException | None
"""The rows of a step of a task or, at its end, None or the error that ended it."""
_Arrivals = Queue[tuple[TaskReport, _Arrived]]


def fetch(
    store: PriceStore,
    sources: Sequence[Source],
    request: FetchRequest,
    *,
    workers: int = 8,
    spot_prices_only: bool = False,
    on_plan: Callable[[list[TaskReport]], None] = unwatched,
    on_progress: Callable[[list[TaskReport]], None] = unwatched,
) -> list[TaskReport]:
    """Runs every task of every source, and stores rows as they arrive.

    With `spot_prices_only`, tasks that bring other things are left out. `on_plan` gets the tasks
    before any is run. Rows that a task yielded before it failed are kept. If this process dies, the
    committed rows stay, and the next fetch continues after them.
    """
    arrivals: _Arrivals = Queue(_QUEUE_LENGTH)
    with _pool(workers) as (pool, stop):
        tasks = _tasks(pool, sources, request)
        planned = [
            (report, task)
            for report, task in tasks
            if task is None or task.spot_prices or not spot_prices_only
        ]
        reports = [report for report, _ in planned]
        on_plan(reports)
        for report, task in planned:
            if task is not None:
                pool.submit(_pull, task, report, arrivals, stop)
        pending = {id(report): _PendingRows(report, request) for report in reports}
        on_progress(reports)
        while not all(report.done for report in reports):
            report, arrived = arrivals.get()
            pending[id(report)].take(arrived, store)
            on_progress(reports)

    store.compact()
    return reports


def requested(fetched: FetchedRows, request: FetchRequest) -> FetchedRows:
    """The rows of the requested operating systems that are not dated in the future."""
    prices = fetched.prices
    latest = request.until + DAY
    systems = [request.wants_system(market.os) for market in prices.markets]
    wanted = np.array(systems, dtype=bool)
    kept = wanted[prices.codes] & (prices.times <= latest)
    kept_prices = PriceBatch(
        prices.markets, prices.codes[kept], prices.times[kept], prices.prices[kept]
    )
    on_demand = tuple(
        price
        for price in fetched.on_demand
        if request.wants_system(price.os) and price.as_of <= latest
    )
    interruptions = tuple(
        figure for figure in fetched.interruptions if request.wants_system(figure.market.os)
    )
    watched = {
        market: record
        for market, record in fetched.watched.items()
        if request.wants_system(market.os)
    }
    return replace(
        fetched,
        prices=kept_prices,
        on_demand=on_demand,
        interruptions=interruptions,
        watched=watched,
    )


@dataclass(slots=True)
class _PendingRows:
    """A task's steps that are not committed yet, collected so that commits are few."""

    report: TaskReport
    request: FetchRequest
    pages: list[FetchedRows] = field(default_factory=list)
    rows: int = 0

    def take(self, arrived: _Arrived, store: PriceStore) -> None:
        """Adds a step; commits when there are enough rows, and at the end of the task."""
        if isinstance(arrived, FetchedRows):
            self.pages.append(arrived)
            self.rows += len(arrived)
            self.report.notes += arrived.notes
            if self.rows >= _COMMIT_ROWS:
                self._commit(store)
            return
        if arrived is not None and not isinstance(arrived, CloudError):
            raise arrived

        self._commit(store)
        self.report.failure = arrived
        self.report.done = True

    def _commit(self, store: PriceStore) -> None:
        if not self.pages:
            return
        fetched = requested(FetchedRows.joined(self.pages), self.request)
        self.report.committed += store.commit(fetched)
        self.report.facts += len(fetched) - len(fetched.prices)
        self.pages = []
        self.rows = 0


@contextmanager
def _pool(workers: int) -> Iterator[tuple[ThreadPoolExecutor, Event]]:
    """Threads that stop soon if the block is left early, by Ctrl-C or a full disk.

    They are not waited for then: they may wait for a server, and what they bring is not stored any
    more.
    """
    stop = Event()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fetch")
    try:
        yield pool, stop
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _tasks(
    pool: ThreadPoolExecutor, sources: Sequence[Source], request: FetchRequest
) -> Iterator[tuple[TaskReport, FetchTask | None]]:
    """Every source's tasks; a source that cannot list its tasks becomes one failed report."""
    planned: list[tuple[Source, Future[list[FetchTask]]]] = []
    for source in sources:
        regions = tuple(region for region in request.regions if is_region_of(source.cloud, region))
        if regions or not request.regions:
            in_regions = replace(request, regions=regions)
            planned.append((source, pool.submit(source.tasks, in_regions)))

    for source, future in planned:
        try:
            tasks = future.result()
        except CloudError as error:
            failed = TaskReport(source.cloud, NO_REGION, "regions", done=True, failure=error)
            yield failed, None
            continue
        for task in tasks:
            asked = TaskReport(task.cloud, task.region, task.what, optional=task.optional)
            yield asked, task


def _pull(task: FetchTask, report: TaskReport, arrivals: _Arrivals, stop: Event) -> None:
    """Runs in a thread: puts a task's steps into the queue, then its end."""
    end: BaseException | None = None
    try:
        for fetched in task.pull():
            if not _put(arrivals, (report, fetched), stop):
                return
    # All but CloudError is a bug; unreported, `fetch` would wait forever.
    except BaseException as error:  # noqa: BLE001
        end = error
    _put(arrivals, (report, end), stop)


def _put(arrivals: _Arrivals, arrival: tuple[TaskReport, _Arrived], stop: Event) -> bool:
    while not stop.is_set():
        try:
            arrivals.put(arrival, timeout=_STOP_CHECK_SECONDS)
        except Full:
            continue
        return True
    return False
