"""`spotctl ui`: the pages of a home as it is now, read from its event log without changing anything, and their server.

It serves one person: on 127.0.0.1 alone, read only, behind a token in the address.
"""

import tempfile
import webbrowser
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, Timer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from pricing_data.errors import PricingDataError
from spotctl.clouds.errors import ProviderError
from spotctl.files.job.reader import restored
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.paths import Paths
from spotctl.log.jobs import waiting_jobs
from spotctl.run.machine_output import RunOutput
from spotctl.show.costs import page
from spotctl.show.costs.cost import Report
from spotctl.show.costs.markup import el, paragraph
from spotctl.show.runs.reading import Watcher, latest_views
from spotctl.show.runs.status import dropped, waiting_json
from spotctl.show.ui.pages import LINKS, POLICY, overview_page, renewed_page, run_page

_OUTPUT_LINES = 60
_BROWSER_SECONDS = 20.0
"""How long a browser may take to ask for the page before a remark says that none has."""
_RECENT = "30d"
"""Costs of this time are shown unless all are asked for, or those of a job."""

_MAX_WATCHED = 20
"""The most runs that are kept in memory: those that were looked at last."""

AnswerPath = Callable[[str, str], str | None]
"""The page at a path below the token, with the query of the address; None if there is none."""

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class _WatchedRun:
    """A job's latest run as far as it was read, with the last lines of its output."""

    watcher: Watcher
    run: str = ""
    output: RunOutput | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_OUTPUT_LINES))


class HomePages:
    """Makes pages, all on one thread, which has the connections to the log.

    `attended` tells to which runs a runner on another computer attends; `nights` are those of `nightly ls --json`.
    """

    def __init__(
        self,
        settings: Settings,
        attended: Callable[[], Collection[str]],
        nights: Callable[[], Sequence[Mapping[str, Any]]],
        costs: Callable[[str, str], Report],
    ) -> None:
        self._settings, self._attended, self._nights, self._costs = settings, attended, nights, costs
        self._watched = dict[str, _WatchedRun]()
        self._reader = ThreadPoolExecutor(1)

    def answer(self, path: str, query: str) -> str | None:
        """The page at a path; None if there is none."""
        return self._reader.submit(self._answer, path, query).result()

    def prepare(self) -> None:
        """Reads the log while the browser starts: the first reading of many runs takes seconds."""
        self._reader.submit(self._answer, "", "")

    def close(self) -> None:
        self._reader.submit(self._close).result()
        self._reader.shutdown()

    def _close(self) -> None:
        for watched in self._watched.values():
            watched.watcher.close()

    def _answer(self, path: str, query: str) -> str | None:
        name, _, job = path.partition("/")
        try:
            if path == "":
                paths, read = Paths(self._settings.home), latest_views(self._settings, self._attended())
                waits, notices = [waiting_json(each, paths) for each in waiting_jobs(paths)], dropped(read.lost)
                return overview_page(read.runs, waits, self._nights(), (*read.damage, *notices), whole=query == "all")
            if path == "costs":
                return self._cost_page(parse_qs(query, keep_blank_values=True))
            return self._run(unquote(job)) if name == "run" and job else None
        except (SpotctlError, PricingDataError, ProviderError) as error:
            links = el("nav", el("a", "All runs", href="../" if "/" in path else "./"))
            return renewed_page("spotctl", links, el("h1", "No page"), paragraph(str(error), "notice"))

    def _cost_page(self, query: Mapping[str, Sequence[str]]) -> str:
        job = query.get("job", [""])[0]
        since = "" if job or "all" in query else _RECENT
        if job:
            other = el("a", job, href=f"run/{quote(job, safe='')}")
        else:
            other = el("a", "All time", href="?all") if since else el("a", "Last 30 days", href="costs")
        links = el("nav", el("a", "All runs", href="./"), other)
        return page.html(self._costs(job, since), el("style", LINKS), links)

    def _run(self, job: str) -> str:
        watched = self._watched.pop(job, None) or _WatchedRun(Watcher(job, self._settings, self._attended()))
        # The last one is the one that was looked at last.
        self._watched[job] = watched
        if len(self._watched) > _MAX_WATCHED:
            self._watched.pop(next(iter(self._watched))).watcher.close()
        run, state = watched.watcher.look(), watched.watcher.state
        with suppress(SpotctlError, ProviderError):
            if watched.output is None or watched.run != state.run:
                assert state.began is not None
                spec = restored(state.began.spec, self._settings.home)
                watched.run, watched.output = state.run, RunOutput(spec, state.run, self._settings)
                watched.lines.clear()
            new = watched.output.new_lines(state, last=state.ended is not None)
            watched.lines.extend(f"{line.machine}: {line.text}" for line in new)
        return run_page(run, watched.lines)


class PageServer(ThreadingHTTPServer):
    """Answers GET of addresses that begin with the token, from this computer."""

    def __init__(self, port: int, token: str, answer: AnswerPath) -> None:
        self.token, self.answer, self.asked = token, answer, False
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "not a port"
            raise BadRequest(f"--port {port}: cannot listen on 127.0.0.1: {why}; 0 chooses a free port") from error

    @property
    def hosts(self) -> tuple[str, ...]:
        """The only hosts that are answered: a page of somebody else cannot read these under a name of its own."""
        return tuple(f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"


@contextmanager
def opened(server: PageServer, say: Callable[[str], object]) -> Iterator[None]:
    """Opens the page in a browser while the block serves it. `say` gets a remark if no browser asks for the page.

    Every user of the computer can read the browser's command line: it names a file that only this user can read, and
    that leads to the address.
    """
    with tempfile.TemporaryDirectory(prefix="spotctl-ui-") as folder:
        page = Path(folder, "spotctl.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={server.address}"><p>{server.address}</p>')
        # A browser in the terminal ends only when its user leaves it.
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        advice = "no browser has asked for the page yet: open the address above"
        unread = Timer(_BROWSER_SECONDS, lambda: server.asked or say(advice))
        unread.daemon = True
        unread.start()
        try:
            yield
        finally:
            unread.cancel()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 10

    def do_GET(self) -> None:
        # A browser that leaves a page no longer waits for it.
        with suppress(ConnectionError):
            self._answer()

    def _answer(self) -> None:
        status, page = self._page()
        body = page.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> tuple[HTTPStatus, str]:
        address = urlsplit(self.path)
        token, _, path = address.path.removeprefix("/").partition("/")
        if self.headers.get("Host") not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "This is not the address that spotctl ui printed.\n"
        if not compare_digest(token.encode(), self.server.token.encode()):
            return HTTPStatus.FORBIDDEN, "Open the address that spotctl ui printed.\n"
        self.server.asked = True
        page = self.server.answer(path, address.query)
        return (HTTPStatus.NOT_FOUND, "There is no such page.\n") if page is None else (HTTPStatus.OK, page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Says nothing: the terminal shows the address."""
