"""Progress bars on stderr; silent when stderr is not a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from pricing_data.ingest import TaskReport
    from spotctl.cli.session import Session

_Part = TypeVar("_Part")
_Answer = TypeVar("_Answer")
_QUIET = "ignore:resource_tracker:UserWarning"


@contextmanager
def reading(
    session: Session, paths: Sequence[Path]
) -> Iterator[Callable[[Path], Callable[[int], None]]]:
    """Progress of reading several files, in bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with _progress(session, *columns) as progress:
        bars = {}
        for path in paths:
            size = None
            with suppress(OSError):
                size = path.stat().st_size
            bars[path] = progress.add_task(escape(path.name), total=size, start=False)

        def start(path: Path) -> Callable[[int], None]:
            progress.start_task(bars[path])
            return lambda position: progress.update(bars[path], completed=position)

        yield start


@contextmanager
def fetching(session: Session) -> Iterator[Callable[[list[TaskReport]], None]]:
    """Progress of a fetch: finished tasks and new prices for each cloud."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]:,} new prices"),
        TimeElapsedColumn(),
    )
    with _progress(session, *columns) as progress:
        bars = {}

        def show(reports: list[TaskReport]) -> None:
            for cloud in dict.fromkeys(report.cloud for report in reports):
                of_cloud = [report for report in reports if report.cloud == cloud]
                if cloud not in bars:
                    bars[cloud] = progress.add_task(cloud, total=len(of_cloud), rows=0)
                done = sum(report.done for report in of_cloud)
                rows = sum(report.committed.added for report in of_cloud)
                progress.update(bars[cloud], completed=done, total=len(of_cloud), rows=rows)

        yield show


def _progress(session: Session, *columns: ProgressColumn) -> Progress:
    return Progress(
        *columns, console=session.err, transient=True, disable=not session.err.is_terminal
    )


def waiting(session: Session, what: str) -> AbstractContextManager[object]:
    """The time that something of unknown length has taken."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = _progress(session, *columns)
    progress.add_task(what, total=None)
    return progress


@contextmanager
def counting(session: Session, what: str, total: int) -> Iterator[Callable[..., None]]:
    """Progress over a known number of steps: one more at each call, or as many as it is given."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with _progress(session, *columns) as progress:
        bar = progress.add_task(what, total=total)

        def step(done: int | None = None) -> None:
            if done is None:
                progress.advance(bar)
            else:
                progress.update(bar, completed=done)

        yield step


def in_processes(
    session: Session,
    what: str,
    function: Callable[[_Part], _Answer],
    parts: Sequence[_Part],
    workers: int,
) -> list[_Answer]:
    """The function of each part, in `workers` processes (0: one per core) with a progress bar."""
    from _thread import start_new_thread
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from agileml.engines.interrupts import end_with_parent, ignored_by_children

    answers: list[_Answer] = []
    with counting(session, what, len(parts)) as step, ExitStack() as stack:
        map_: Callable[..., Iterator[_Answer]] = map
        if workers != 1 and len(parts) > 1:
            # Python's tracker frees a pool's semaphores after Ctrl-C, as it should: without a
            # warning.
            from multiprocessing import resource_tracker

            usual = os.environ.get("PYTHONWARNINGS")
            os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (usual, _QUIET)))
            try:
                resource_tracker.ensure_running()
            finally:
                if usual is None:
                    del os.environ["PYTHONWARNINGS"]
                else:
                    os.environ["PYTHONWARNINGS"] = usual

            # Spawned, not forked: a fork would copy the locks of the progress bar's thread in any
            # state.
            pool = ProcessPoolExecutor(
                workers or None,
                mp_context=get_context("spawn"),
                initializer=start_new_thread,
                initargs=(end_with_parent, ()),
            )
            # Ctrl-C ends the wait for an answer.
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            map_ = pool.map
        with ignored_by_children():
            mapped = map_(function, parts)
        for answer in mapped:
            answers.append(answer)
            step()

    return answers
