"""Runs as metrics in Prometheus' text format, and where they go: a file that is replaced as a
whole, or a port here.

Jobs that name trackers also get them there.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from errno import EISDIR
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from agileml.runtime.ground import replaced
from bidbrain.billing import usd
from pricing_data.units import SECOND
from spotctl.home.callbacks import unheard
from spotctl.home.errors import BadRequest
from spotctl.home.installation import read_or_create
from spotctl.show.columns import at_path
from spotctl.show.runs.run_view import RunView
from spotctl.show.tracking import TrackedRuns

if TYPE_CHECKING:
    from spotctl.log.state import RunState
    from spotctl.show.runs.reading import RunViews

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, type and meaning in Prometheus, and the path of its value in a row, as
    columns of tables have it; rows without a value have no sample."""

    name: str
    kind: str
    meaning: str
    value: str = ""
    form: Callable[[Any], float] | None = None


_MONEY = (
    Metric("spotctl_spent_dollars", "gauge", "Paid so far; refunds lower it.", "money.spent", usd),
    Metric(
        "spotctl_committed_dollars",
        "gauge",
        "Spent, or reserved until the leases end.",
        "money.committed",
        usd,
    ),
    Metric(
        "spotctl_on_demand_dollars",
        "gauge",
        "Cost of the same work on demand.",
        "money.on_demand",
        usd,
    ),
    Metric(
        "spotctl_budget_dollars",
        "gauge",
        "Spending stops before it exceeds this.",
        "money.budget",
        usd,
    ),
)
_REPLAYED = tuple(
    replace(
        metric,
        name=metric.name.replace("spotctl_", "spotctl_replayed_"),
        meaning=f"{metric.meaning} On the local market, which bills nothing.",
    )
    for metric in _MONEY
)
"""The money of replayed runs has names of its own, so that no sum over a metric has both kinds of
money."""
_MACHINES = Metric("spotctl_machines", "gauge", "Machines held now.", "held")
_GPU = Metric(
    "spotctl_gpu_busy_ratio",
    "gauge",
    "Share of time in which GPUs compute, by market.",
    "gpus.0",
)
_OF_RUN = (
    Metric("spotctl_evictions_total", "counter", "Machines that the cloud evicted.", "evictions"),
    Metric("spotctl_clock", "gauge", "The newest finished clock of a training.", "clock"),
    Metric("spotctl_clocks", "gauge", "The clock at which the training ends.", "goal"),
    Metric("spotctl_loss", "gauge", "The loss of the model before the newest clock.", "loss"),
    Metric(
        "spotctl_updates_lost_total",
        "counter",
        "Updates that were lost; known at the end of a training.",
        "updates_lost",
    ),
    Metric(
        "spotctl_last_clock_age_seconds",
        "gauge",
        "Market time since the newest clock was finished.",
        "clock_age",
    ),
    Metric(
        "spotctl_expected_end_seconds", "gauge", "Market time until the expected end.", "to_end"
    ),
    Metric("spotctl_running", "gauge", "1 until the run has ended.", "running"),
)
_UPDATED = Metric(
    "spotctl_updated_timestamp_seconds",
    "gauge",
    "When these metrics were written, in seconds since 1970. They stop changing if the runner is "
    "killed.",
    "seconds",
)
_OF_NIGHT = (
    Metric(
        "spotctl_night_running",
        "gauge",
        "1 while a process attends to a night of the job.",
        "running",
        int,
    ),
    Metric(
        "spotctl_night_done",
        "gauge",
        "1 if the job was done in the last night that has ended.",
        "done",
        int,
    ),
    Metric(
        "spotctl_night_cost_dollars",
        "gauge",
        "Billed for the last night that has ended.",
        "cost_usd",
    ),
    Metric(
        "spotctl_night_end_timestamp_seconds",
        "gauge",
        "When the last night ended, since 1970.",
        "end",
    ),
    Metric(
        "spotctl_night_success_timestamp_seconds",
        "gauge",
        "When the last night ended in which the job was done.",
        "success",
    ),
)
METRICS = {
    "billed run": _MONEY,
    "replayed run": _REPLAYED,
    "machines of a kind": (_MACHINES,),
    "market": (_GPU,),
    "run": _OF_RUN,
    "night": _OF_NIGHT,
    "all": (_UPDATED,),
}
"""The metrics by what their rows are, in the order of the text."""

LabeledRows = list[tuple[Labels, Any]]
"""The rows of some metrics, each with the labels of its samples."""


@dataclass(frozen=True, slots=True)
class NightFigures:
    """A nightly job: whether a night is going on, and how the last one ended. Moments in seconds
    since 1970.
    """

    job: str
    running: bool
    done: bool | None = None
    cost_usd: float | None = None
    end: float | None = None
    success: float | None = None


def metrics_text(runs: Sequence[RunView], seconds: float, night: NightFigures | None = None) -> str:
    """The metrics of some runs, as they were at `seconds` since 1970 on this computer's clock."""
    rows_of: dict[str, LabeledRows] = {of: [] for of in METRICS}
    for view in runs:
        run = (("job", view.job), ("run", view.run))
        rows_of["replayed run" if view.is_replayed else "billed run"].append((run, view))

        held = Counter(
            (machine.market, machine.reliable, machine.pricing) for machine in view.machines
        )
        rows = LabeledRows()
        # A kind that was held counts as 0 once its machines are gone.
        for held_market, reliable, pricing in view.kinds:
            kind = "reliable" if reliable else "transient"
            labels = (("kind", kind), ("market", str(held_market)), ("pricing", pricing))
            rows.append(((*run, *labels), {"held": held[held_market, reliable, pricing]}))

        rows_of["machines of a kind"] += rows

        for used in view.markets:
            market = ("market", str(used.market))
            rows_of["market"].append(((*run, market), used))
        rows_of["run"].append((run, _figures(view)))

    if night is not None:
        rows_of["night"].append(((("job", night.job),), night))
    rows_of["all"].append(((), {"seconds": round(seconds, 3)}))

    lines = list[str]()
    for of, metrics in METRICS.items():
        # The format wants the samples of one metric together, also those of several runs.
        for metric in metrics:
            lines += _lines(metric, rows_of[of])

    return "".join(f"{line}\n" for line in lines)


def _figures(view: RunView) -> dict[str, float | None]:
    """The figures of a run, as far as they are known and say something at that moment."""
    figures: dict[str, float | None] = {
        "evictions": view.evictions,
        "clock": view.clock,
        "goal": None,
        "loss": view.loss,
        "updates_lost": None,
        "clock_age": None,
        "to_end": None,
        "running": int(view.ended is None),
    }

    if view.clock is not None:
        figures["goal"] = view.goal
    if view.clock_at is not None:
        figures["clock_age"] = (view.now - view.clock_at) / SECOND
    if view.ended is not None:
        figures["updates_lost"] = view.updates_lost
    elif view.expected_end is not None:
        figures["to_end"] = max(view.expected_end - view.now, 0) / SECOND
    return figures


def _lines(metric: Metric, rows: LabeledRows) -> list[str]:
    lines = list[str]()
    for labels, row in rows:
        value = at_path(row, *metric.value.split("."))
        if value is None:
            continue
        sample, shown = metric.name, list[str]()
        for name, text in labels:
            escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            shown.append(f'{name}="{escaped}"')
        if shown:
            sample += f"{{{','.join(shown)}}}"
        number = value if metric.form is None else metric.form(value)
        lines.append(f"{sample} {number}")

    if not lines:
        return []
    head = (f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}")
    return [*head, *lines]


_EVERY_SECONDS = 1.0
_HIGHEST_PORT = 65535
_ONLY_OWNER = 0o600
_CREDENTIALS_FILE = "metrics-token"


class Publisher:
    """Makes the text from the newest states of runs, at most once a second and at the end of a run.

    Until then, a file keeps the text of an earlier command. Without `put`, only the trackers of
    jobs get anything.
    """

    def __init__(
        self, views: RunViews, tracked: TrackedRuns, put: Callable[[str], None] | None = None
    ) -> None:
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
    """Publishes the figures of runs in a file or on a port, if `place` is not empty, and in the
    trackers of their jobs.

    A place that cannot be used is refused, or, unless it is `needed`, reported: the run continues
    without metrics.
    """
    with ExitStack() as stack:
        put = None
        try:
            put = stack.enter_context(_place(place, remark, views.settings.home)) if place else None
        except BadRequest as error:
            if needed:
                raise
            remark(f"{error}; the run continues without metrics")
        tracked = TrackedRuns(views.settings, remark)
        stack.callback(tracked.close)
        yield Publisher(views, tracked, put)


def absolute(place: str, home: Path) -> str:
    """The place for a command that runs in another folder. Refuses a place that cannot be used
    now."""
    if place:
        with _place(place, unheard, home):
            pass
    if not place or place.isdecimal():
        return place
    return str(Path(place).absolute())


@contextmanager
def _place(
    place: str, remark: Callable[[str], None], home: Path
) -> Iterator[Callable[[str], None]]:
    """The function that publishes a text: into a file, or on a port, for requests with the token of
    the `home`.
    """
    if place.isdecimal():
        with _served(int(place), home / _CREDENTIALS_FILE) as put:
            token = f"the bearer token in {home / _CREDENTIALS_FILE}"
            remark(f"metrics on http://127.0.0.1:{place}/metrics for requests with {token}")
            yield put
    elif re.fullmatch(r"[\w.]*:\d+|-\d+", place):
        raise BadRequest(
            f"--metrics {place}: expected a file, or a port of 127.0.0.1 alone, such as 9100"
        )
    else:
        path = Path(place)
        try:
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
            # The file stays as it is: monitoring may read it at any moment.
            TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise BadRequest(f"--metrics {path}: cannot be written: {error.strerror}") from error
        yield _Replacing(path, remark)


class _Replacing:
    """Replaces the file of metrics with newer text. A failure is reported once: the run goes on
    without metrics."""

    def __init__(self, path: Path, remark: Callable[[str], None]) -> None:
        self._path, self._remark, self._failed = path, remark, False

    def __call__(self, text: str) -> None:
        try:
            # Others can read it if its user has opened it to them.
            mode = stat.S_IMODE(self._path.stat().st_mode) if self._path.exists() else _ONLY_OWNER
            with replaced(self._path) as new:
                new.touch(_ONLY_OWNER)
                new.write_text(text)
                new.chmod(mode)
        except OSError as error:
            if not self._failed:
                self._remark(
                    f"--metrics {self._path}: cannot be written: {error.strerror}; the run "
                    "continues"
                )
            self._failed = True


@contextmanager
def _served(port: int, credentials: Path) -> Iterator[Callable[[str], None]]:
    newest = [metrics_text([], time.time())]
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost")]

    class Handler(BaseHTTPRequestHandler):
        """Answers a GET that has the token with the newest text."""

        timeout = 10

        def do_GET(self) -> None:
            # A page of somebody else cannot ask under a name of its own.
            is_here = self.headers.get("Host") in hosts
            given = self.headers.get("Authorization", "").encode()
            if is_here and compare_digest(given, f"Bearer {token}".encode()):
                status, body = HTTPStatus.OK, newest[0].encode()
            else:
                status = HTTPStatus.UNAUTHORIZED if is_here else HTTPStatus.MISDIRECTED_REQUEST
                body = (
                    b""
                    if not is_here
                    else f"Send the token in {_CREDENTIALS_FILE}, in spotctl's home.\n".encode()
                )

            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        # The name in http.server.
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing: stderr is the terminal of the launch."""

    if not 0 < port <= _HIGHEST_PORT:
        raise BadRequest(f"--metrics {port} is not a port (1 to {_HIGHEST_PORT})")

    token = read_or_create(credentials, secrets.token_urlsafe(32).encode()).decode()
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise BadRequest(
            f"--metrics {port}: cannot listen on 127.0.0.1:{port}: {error.strerror}"
        ) from error

    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield lambda text: newest.__setitem__(0, text)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
