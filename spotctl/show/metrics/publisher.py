"""Where metrics go: a file that is replaced as a whole, a port on this computer, or the trackers that a job names."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import EISDIR
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from spotctl.home.errors import BadRequest
from spotctl.show.metrics.text import metrics_text
from spotctl.show.tracking.followed import TrackedRuns

if TYPE_CHECKING:
    from spotctl.log.state import RunState
    from spotctl.show.metrics.text import NightFigures
    from spotctl.show.runs.reading import RunViews
    from spotctl.show.runs.run_view import RunView

_EVERY_SECONDS = 1.0
_HIGHEST_PORT = 65535


class Publisher:
    """Makes the text from the newest states of runs, at most once a second and at the end of a run.

    Until then, a file keeps the text of an earlier command. Without `put`, only the trackers of jobs get anything.
    """

    def __init__(self, views: RunViews, tracked: TrackedRuns, put: Callable[[str], None] | None = None) -> None:
        self._views, self._tracked, self._put = views, tracked, put
        self._runs: dict[str, RunView] = {}
        self._night: NightFigures | None = None
        self._due = dict[str, float]()
        # Several runs of one launch are in threads of their own.
        self._lock = Lock()

    def __call__(self, state: RunState) -> None:
        self._tracked.note(state)
        if self._put is None:
            return
        with self._lock:
            if state.ended is None and time.monotonic() < self._due.get(state.run, 0.0):
                return
            self._due[state.run] = time.monotonic() + _EVERY_SECONDS
            self._runs[state.run] = self._views.of(state)
            self._publish(self._put)

    def night(self, figures: NightFigures) -> None:
        """Publishes how a nightly job is doing, from now on with its runs."""
        with self._lock:
            self._night = figures
            if self._put is not None:
                self._publish(self._put)

    def _publish(self, put: Callable[[str], None]) -> None:
        put(metrics_text(list(self._runs.values()), time.time(), self._night))


@contextmanager
def publishing(
    place: str, views: RunViews, remark: Callable[[str], None], *, needed: bool = True
) -> Iterator[Publisher]:
    """Publishes the figures of runs in a file or on a port, if `place` is not empty, and in the trackers of their jobs.

    A place that cannot be used is refused, or, unless it is `needed`, reported: the run continues without metrics.
    """
    with ExitStack() as stack:
        put = None
        try:
            put = stack.enter_context(_place(place, remark)) if place else None
        except BadRequest as error:
            if needed:
                raise
            remark(f"{error}; the run continues without metrics")
        tracked = TrackedRuns(views.settings, remark)
        stack.callback(tracked.close)
        yield Publisher(views, tracked, put)


def absolute(place: str) -> str:
    """The place for a command that runs in another folder. Refuses a place that cannot be used now."""
    if place:
        with _place(place, lambda _: None):
            pass
    return place if not place or place.isdecimal() else str(Path(place).absolute())


@contextmanager
def _place(place: str, remark: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """The function that publishes a text: into a file, or on a port."""
    if place.isdecimal():
        with _served(int(place)) as put:
            yield put
    elif re.fullmatch(r"[\w.]*:\d+|-\d+", place):
        raise BadRequest(f"--metrics {place}: expected a file, or a port of 127.0.0.1 alone, such as 9100")
    else:
        path = Path(place)
        try:
            _check_writable(path)
        except OSError as error:
            raise BadRequest(f"--metrics {path}: cannot be written: {error.strerror}") from error
        yield _Replacing(path, remark)


class _Replacing:
    """Replaces the file. A failure is reported once: the run goes on without metrics."""

    def __init__(self, path: Path, remark: Callable[[str], None]) -> None:
        self._path, self._remark, self._failed = path, remark, False

    def __call__(self, text: str) -> None:
        try:
            _replace(self._path, text)
        except OSError as error:
            if not self._failed:
                self._remark(f"--metrics {self._path}: cannot be written: {error.strerror}; the run continues")
            self._failed = True


def _check_writable(path: Path) -> None:
    """Raises OSError if the file cannot be replaced. The file stays as it is: monitoring may read it at any moment."""
    if path.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    temporary = _temporary(path)
    try:
        temporary.touch()
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    # The node exporter reads every *.prom of its folder, so the new file must not have that suffix yet.
    return path.with_name(f"{path.name}.{os.getpid()}")


def _replace(path: Path, text: str) -> None:
    temporary = _temporary(path)
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _served(port: int) -> Iterator[Callable[[str], None]]:
    newest = [metrics_text([], time.time())]

    class Handler(BaseHTTPRequestHandler):
        """Answers every GET with the newest text."""

        def do_GET(self) -> None:
            body = newest[0].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
            """Says nothing: stderr is the terminal of the launch."""

    if not 0 < port <= _HIGHEST_PORT:
        raise BadRequest(f"--metrics {port} is not a port (1 to {_HIGHEST_PORT})")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise BadRequest(f"--metrics {port}: cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield lambda text: newest.__setitem__(0, text)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
