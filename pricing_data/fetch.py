"""Fetches from several sources in parallel into the store; a failure of one does not affect the others."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Full, Queue
from threading import Event

import numpy as np

from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.market import is_region_of
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask, Source
from pricing_data.store import Committed, PriceStore
from pricing_data.units import DAY

# Pages are small; committing each by itself would fill the store with tiny files.
_COMMIT_ROWS = 50_000
# How many steps may wait for the store; a source that is faster than the disk is slowed down here.
_QUEUE_LENGTH = 64
_STOP_CHECK_SECONDS = 0.2


@dataclass(slots=True)
class TaskReport:
    """The result of one task of a fetch. `failure` is None if it succeeded."""

    cloud: str
    region: str
    what: str
    committed: Committed = field(default_factory=Committed)
    facts: int = 0
    done: bool = False
    failure: CloudError | None = None
    optional: bool = False


def fetch(
    store: PriceStore,
    sources: Sequence[Source],
    request: FetchRequest,
    *,
    workers: int = 8,
    spot_prices_only: bool = False,
    on_plan: Callable[[list[TaskReport]], None] = lambda _: None,
    on_progress: Callable[[list[TaskReport]], None] = lambda _: None,
) -> list[TaskReport]:
    """Runs every task of every source, and stores rows as they arrive.

    With `spot_prices_only`, tasks that bring other things are left out. `on_plan` gets the tasks before any is run.
    Rows that a task yielded before it failed are kept. If this process dies, the committed rows stay, and the next
    fetch continues after them.
    """
    arrivals: Queue[_Arrival] = Queue(_QUEUE_LENGTH)
    with _pool(workers) as (pool, stop):
        planned = [
            (report, task)
            for report, task in _tasks(pool, sources, request)
            if task is None or task.spot_prices or not spot_prices_only
        ]
        reports = [report for report, _ in planned]
        on_plan(reports)
        for report, task in planned:
            if task is not None:
                pull = pool.submit(_pull, task, report, arrivals, stop)
                pull.add_done_callback(partial(_report_crash, report, arrivals, stop))
        pending = {id(report): _PendingRows(report, request) for report in reports}
        on_progress(reports)
        while not all(report.done for report in reports):
            arrival = arrivals.get()
            pending[id(arrival.report)].take(arrival, store)
            on_progress(reports)
    store.compact()
    return reports


def requested(fetched: FetchedRows, request: FetchRequest) -> FetchedRows:
    """The rows of the requested operating systems that are not dated in the future."""
    prices, latest = fetched.prices, request.until + DAY
    wanted = np.array([request.wants_system(market.os) for market in prices.markets], dtype=bool)
    kept = wanted[prices.codes] & (prices.times <= latest)
    return replace(
        fetched,
        prices=PriceBatch(prices.markets, prices.codes[kept], prices.times[kept], prices.prices[kept]),
        on_demand=tuple(
            price for price in fetched.on_demand if request.wants_system(price.os) and price.as_of <= latest
        ),
        interruptions=tuple(figure for figure in fetched.interruptions if request.wants_system(figure.market.os)),
        watched={market: record for market, record in fetched.watched.items() if request.wants_system(market.os)},
    )


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message of a thread: one step of a task, or the end of the task, which may be a failure or a bug."""

    report: TaskReport
    fetched: FetchedRows | None = None
    failure: CloudError | None = None
    crash: BaseException | None = None


@dataclass(slots=True)
class _PendingRows:
    """A task's steps that are not committed yet, collected so that commits are few."""

    report: TaskReport
    request: FetchRequest
    pages: list[FetchedRows] = field(default_factory=list)
    rows: int = 0

    def take(self, arrival: _Arrival, store: PriceStore) -> None:
        """Adds a step; commits when there are enough rows, and at the end of the task."""
        if arrival.crash is not None:
            raise arrival.crash
        if arrival.fetched is not None:
            self.pages.append(arrival.fetched)
            self.rows += len(arrival.fetched)
            if self.rows >= _COMMIT_ROWS:
                self._commit(store)
            return
        self._commit(store)
        self.report.failure = arrival.failure
        self.report.done = True

    def _commit(self, store: PriceStore) -> None:
        if not self.pages:
            return
        fetched = requested(FetchedRows.joined(self.pages), self.request)
        self.report.committed += store.commit(fetched)
        self.report.facts += len(fetched) - len(fetched.prices)
        self.pages, self.rows = [], 0


@contextmanager
def _pool(workers: int) -> Iterator[tuple[ThreadPoolExecutor, Event]]:
    """Threads that stop soon if the block is left early, by Ctrl-C or a full disk.

    They are not waited for then: they may wait for a server, and what they bring is not stored any more.
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
    requests = ((source, _for_cloud(request, source.cloud)) for source in sources)
    planned = [(source, pool.submit(source.tasks, part)) for source, part in requests if part is not None]
    for source, future in planned:
        try:
            tasks = future.result()
        except CloudError as error:
            yield TaskReport(source.cloud, NO_REGION, "regions", done=True, failure=error), None
            continue
        for task in tasks:
            yield TaskReport(task.cloud, task.region, task.what, optional=task.optional), task


def _for_cloud(request: FetchRequest, cloud: str) -> FetchRequest | None:
    """The request with only the regions of this cloud; None if it names regions and none is of this cloud."""
    if not request.regions:
        return request
    regions = tuple(region for region in request.regions if is_region_of(cloud, region))
    return replace(request, regions=regions) if regions else None


def _pull(task: FetchTask, report: TaskReport, arrivals: Queue[_Arrival], stop: Event) -> None:
    """Runs in a thread: puts a task's steps into the queue, then its end."""
    failure: CloudError | None = None
    try:
        for fetched in task.pull():
            if not _put(arrivals, _Arrival(report, fetched), stop):
                return
    except CloudError as error:
        failure = error
    _put(arrivals, _Arrival(report, failure=failure), stop)


def _report_crash(report: TaskReport, arrivals: Queue[_Arrival], stop: Event, pull: Future[None]) -> None:
    """Hands over any error but `CloudError`, which is a bug; without this, `fetch` would wait forever."""
    crash = None if pull.cancelled() else pull.exception()
    if crash is not None:
        _put(arrivals, _Arrival(report, crash=crash), stop)


def _put(arrivals: Queue[_Arrival], arrival: _Arrival, stop: Event) -> bool:
    while not stop.is_set():
        try:
            arrivals.put(arrival, timeout=_STOP_CHECK_SECONDS)
        except Full:
            continue
        return True
    return False
