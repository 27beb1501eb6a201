"""Progress bars on stderr; silent when stderr is not a terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

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

from pricing_data.ingest import TaskReport
from spotctl.cli.session import Session


@contextmanager
def reading(session: Session, paths: Sequence[Path]) -> Iterator[Callable[[Path], Callable[[int], None]]]:
    """Progress of reading several files, in bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with _progress(session, *columns) as progress:
        bars = {path: progress.add_task(escape(path.name), total=_size(path), start=False) for path in paths}

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
    return Progress(*columns, console=session.err, transient=True, disable=not session.err.is_terminal)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def waiting(session: Session, what: str) -> AbstractContextManager[object]:
    """The time that something of unknown length has taken."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = _progress(session, *columns)
    progress.add_task(what, total=None)
    return progress


def planning(session: Session, jobs: int) -> AbstractContextManager[object]:
    """The time that planning has taken."""
    return waiting(session, f"planning {jobs} jobs" if jobs > 1 else "planning")


@contextmanager
def reaching(session: Session, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress towards a number, as the number that is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _progress(session, *columns) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)


@contextmanager
def counting(session: Session, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Progress over a known number of steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _progress(session, *columns) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda: progress.advance(bar)
