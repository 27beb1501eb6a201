"""Fetch: sources side by side into the store; one that fails costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Full, Queue
from threading import Event

from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import is_region_of
from pricing_data.sources.base import FetchRequest, FetchTask, Source
from pricing_data.store import Committed, PriceStore

# Pages are small; committed one by one they would make the store a heap of tiny files.
_COMMIT_ROWS = 50_000
# Harvests that wait for the store; a source faster than the disk is held back here.
_WAITING = 64
_PATIENCE_SECONDS = 0.2


@dataclass(slots=True)
class TaskReport:
    """What one task of a fetch brought. `failure` is None when it came to its end."""

    cloud: str
    region: str
    what: str
    committed: Committed = field(default_factory=Committed)
    facts: int = 0
    done: bool = False
    failure: CloudError | None = None


def fetch(
    store: PriceStore,
    sources: Sequence[Source],
    request: FetchRequest,
    *,
    workers: int = 8,
    on_progress: Callable[[list[TaskReport]], None] = lambda _: None,
) -> list[TaskReport]:
    """Runs every task of every source and stores what comes, while it comes.

    What a task yielded before it failed is kept. If this process dies, what was committed stays, and the next fetch
    goes on behind it.
    """
    reports: list[TaskReport] = []
    arrivals: Queue[_Arrival] = Queue(_WAITING)
    with _pool(workers) as (pool, stop):
        for report, task in _tasks(pool, sources, request):
            reports.append(report)
            if task is not None:
                pull = pool.submit(_pull, task, report, arrivals, stop)
                pull.add_done_callback(partial(_tell_of_crash, report, arrivals, stop))
        baskets = {id(report): _Basket(report) for report in reports}
        on_progress(reports)
        while not all(report.done for report in reports):
            arrival = arrivals.get()
            baskets[id(arrival.report)].take(arrival, store)
            on_progress(reports)
    store.compact()
    return reports


@dataclass(frozen=True, slots=True)
class _Arrival:
    """What a thread hands over: a harvest of a task, or its end, which may be a failure or a bug."""

    report: TaskReport
    harvest: FetchedRows | None = None
    failure: CloudError | None = None
    crash: BaseException | None = None


@dataclass(slots=True)
class _Basket:
    """A task's harvests on their way into the store, gathered so that commits are few."""

    report: TaskReport
    pages: list[FetchedRows] = field(default_factory=list)
    rows: int = 0

    def take(self, arrival: _Arrival, store: PriceStore) -> None:
        """Adds a harvest; commits when there are enough, and at the end of the task."""
        if arrival.crash is not None:
            raise arrival.crash
        if arrival.harvest is not None:
            self.pages.append(arrival.harvest)
            self.rows += len(arrival.harvest)
            if self.rows >= _COMMIT_ROWS:
                self._empty(store)
            return
        self._empty(store)
        self.report.failure = arrival.failure
        self.report.done = True

    def _empty(self, store: PriceStore) -> None:
        if not self.pages:
            return
        harvest = FetchedRows.joined(self.pages)
        self.report.committed += store.commit(harvest)
        self.report.facts += len(harvest) - len(harvest.prices)
        self.pages, self.rows = [], 0


@contextmanager
def _pool(workers: int) -> Iterator[tuple[ThreadPoolExecutor, Event]]:
    """Threads that end soon when the block is left early, by Ctrl-C or a full disk."""
    stop = Event()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fetch")
    try:
        yield pool, stop
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _tasks(
    pool: ThreadPoolExecutor, sources: Sequence[Source], request: FetchRequest
) -> Iterator[tuple[TaskReport, FetchTask | None]]:
    """Every source's tasks; a source that cannot even say what there is to do becomes one failed report."""
    asked = ((source, _for_cloud(request, source.cloud)) for source in sources)
    planned = [(source, pool.submit(source.tasks, part)) for source, part in asked if part is not None]
    for source, future in planned:
        try:
            tasks = future.result()
        except CloudError as error:
            yield TaskReport(source.cloud, "-", "regions", done=True, failure=error), None
            continue
        for task in tasks:
            yield TaskReport(task.cloud, task.region, task.what), task


def _for_cloud(request: FetchRequest, cloud: str) -> FetchRequest | None:
    """The request with only the regions of this cloud; None where regions are named and none is of it."""
    if not request.regions:
        return request
    regions = tuple(region for region in request.regions if is_region_of(cloud, region))
    return replace(request, regions=regions) if regions else None


def _pull(task: FetchTask, report: TaskReport, arrivals: Queue[_Arrival], stop: Event) -> None:
    """Runs in a thread: moves a task's harvests into the queue, and at last its end."""
    failure: CloudError | None = None
    try:
        for harvest in task.pull():
            if not _put(arrivals, _Arrival(report, harvest), stop):
                return
    except CloudError as error:
        failure = error
    _put(arrivals, _Arrival(report, failure=failure), stop)


def _tell_of_crash(report: TaskReport, arrivals: Queue[_Arrival], stop: Event, pull: Future[None]) -> None:
    """A task that raised anything but `CloudError` has a bug; without this it would be waited for in vain."""
    crash = None if pull.cancelled() else pull.exception()
    if crash is not None:
        _put(arrivals, _Arrival(report, crash=crash), stop)


def _put(arrivals: Queue[_Arrival], arrival: _Arrival, stop: Event) -> bool:
    while not stop.is_set():
        try:
            arrivals.put(arrival, timeout=_PATIENCE_SECONDS)
        except Full:
            continue
        return True
    return False
