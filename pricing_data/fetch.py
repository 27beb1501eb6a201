"""Fetch: sources side by side into the store; one that fails costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Event

from pricing_data.errors import SourceError
from pricing_data.harvest import Harvest
from pricing_data.sources.base import FetchRequest, Source, Task
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
    failure: SourceError | None = None


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
        pulls: list[Future[None]] = []
        for report, task in _tasks(pool, sources, request):
            reports.append(report)
            if task is not None:
                pulls.append(pool.submit(_pull, task, report, arrivals, stop))
        waiting: dict[int, list[Harvest]] = {}
        while not all(report.done for report in reports):
            on_progress(reports)
            try:
                _take(store, arrivals.get(timeout=_PATIENCE_SECONDS), waiting)
            except Empty:
                _raise_if_broken(pulls)
        on_progress(reports)
    store.compact()
    return reports


def _raise_if_broken(pulls: Sequence[Future[None]]) -> None:
    """A task that raised anything but `SourceError` has a bug, and would be waited for in vain."""
    for pull in pulls:
        if pull.done():
            pull.result()


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A harvest of a task, or without one: its end."""

    report: TaskReport
    harvest: Harvest | None = None
    failure: SourceError | None = None


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
) -> Iterator[tuple[TaskReport, Task | None]]:
    """Every source's tasks; a source that cannot even say what there is to do becomes one failed report."""
    planned = [(source, pool.submit(source.tasks, request)) for source in sources]
    for source, future in planned:
        try:
            tasks = future.result()
        except SourceError as error:
            yield TaskReport(source.cloud, "-", "regions", done=True, failure=error), None
            continue
        for task in tasks:
            yield TaskReport(task.cloud, task.region, task.what), task


def _pull(task: Task, report: TaskReport, arrivals: Queue[_Arrival], stop: Event) -> None:
    """Runs in a thread: moves a task's harvests into the queue, and at last its end."""
    failure: SourceError | None = None
    try:
        for harvest in task.pull():
            if not _put(arrivals, _Arrival(report, harvest), stop):
                return
    except SourceError as error:
        failure = error
    _put(arrivals, _Arrival(report, failure=failure), stop)


def _put(arrivals: Queue[_Arrival], arrival: _Arrival, stop: Event) -> bool:
    while not stop.is_set():
        try:
            arrivals.put(arrival, timeout=_PATIENCE_SECONDS)
        except Full:
            continue
        return True
    return False


def _take(store: PriceStore, arrival: _Arrival, waiting: dict[int, list[Harvest]]) -> None:
    """Gathers a task's harvests and commits them when there are enough, or when the task is at its end."""
    report, pages = arrival.report, waiting.setdefault(id(arrival.report), [])
    if arrival.harvest is not None:
        pages.append(arrival.harvest)
    ended = arrival.harvest is None
    if pages and (ended or sum(map(len, pages)) >= _COMMIT_ROWS):
        harvest = Harvest.joined(pages)
        report.committed += store.commit(harvest)
        report.facts += len(harvest) - len(harvest.prices)
        pages.clear()
    if ended:
        report.failure = arrival.failure
        report.done = True
