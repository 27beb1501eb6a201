"""`spotctl ui`: the pages of a home as it is now, read from its event log, the commands that they
begin, and their server.

It serves one person: on 127.0.0.1 alone, behind a token in the address. Its pages change nothing. A
form of one, sent from the page itself and with the words that it asks for, begins the command of
these words.
"""

import os
import subprocess
import sys
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
from typing import IO, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from pricing_data.errors import PricingDataError
from pricing_data.units import MAX_USD, parse_usd
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
from spotctl.show.ui.pages import (
    BUDGET,
    COMMANDS,
    LINKS,
    POLICY,
    RESUME,
    overview_page,
    renewed_page,
    run_page,
)

_OUTPUT_LINES = 60
_BROWSER_SECONDS = 20.0
"""How long a browser may take to ask for the page before a remark says that none has."""
_RECENT = "30d"
"""Costs of this time are shown unless all are asked for, or those of a job."""

_MAX_WATCHED = 20
"""The most runs that are kept in memory: those that were looked at last."""

AnswerPath = Callable[[str, str], str | None]
"""The page at a path below the token, with the query of the address; None if there is none."""
BeginCommand = Callable[[str], str]
"""Begins the command of some words, such as `stop nightly-recsys`, and tells at which path one
follows it."""

_MAX_BYTES = 4096
"""The most that a form sends."""

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


_NO_HEADERS: Mapping[str, str] = {}


@dataclass
class _WatchedRun:
    """A job's latest run as far as it was read, with the last lines of its output."""

    watcher: Watcher
    run: str = ""
    output: RunOutput | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_OUTPUT_LINES))


class BegunCommands:
    """The commands of this program that pages began, as their user would have typed them. They go
    on when the pages end."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._begun = dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]]()

    def begin(self, words: str) -> None:
        """Begins `stop JOB`, `resume JOB` or `resume JOB --budget USD`, unless the same is under
        way.
        """
        if words in self._begun and self._begun[words][0].poll() is None:
            return

        command, job, *amount = words.split(" ")
        environment = {**os.environ, "SPOTCTL_HOME": str(self._home)}
        # A file, because nobody reads a pipe once the pages have ended.
        said = tempfile.TemporaryFile()  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "spotctl", command, *amount, "--", job],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )

        self._begun[words] = process, said

    def remarks(self) -> list[str]:
        """A line for each command that is under way, and the last line of each that failed."""
        lines = list[str]()
        # Another thread may begin a command meanwhile.
        for words, (process, said) in tuple(self._begun.items()):
            if process.poll() is None:
                lines.append(f"spotctl {words} is under way")
            elif process.returncode:
                said.seek(0)
                last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
                lines.append(f"spotctl {words} ended with code {process.returncode}: {last}")

        return lines


class HomePages:
    """Makes pages, all on one thread, which has the connections to the log.

    `attended` tells to which runs a runner on another computer attends; `nights` are those of
    `nightly ls --json`; `today` is the report of this day's costs.
    """

    def __init__(
        self,
        settings: Settings,
        attended: Callable[[], Collection[str]],
        nights: Callable[[], Sequence[Mapping[str, Any]]],
        costs: Callable[[str, str], Report],
        today: Callable[[], Report],
        begun: BegunCommands,
    ) -> None:
        self._settings, self._attended, self._nights, self._costs = (
            settings,
            attended,
            nights,
            costs,
        )

        self._today, self._begun = today, begun
        self._watched = dict[str, _WatchedRun]()
        self._reader = ThreadPoolExecutor(1)

    def answer(self, path: str, query: str) -> str | None:
        """The page at a path; None if there is none."""
        return self._reader.submit(self._answer, path, query).result()

    def begin(self, words: str) -> str:
        """Begins a command for a job of this home, and returns the path of the page on which one
        follows it.
        """
        match words.split(" "):
            case [command, job] if command in COMMANDS:
                is_known = True
            case [command, job, option, amount] if (command, option) == (RESUME, BUDGET):
                is_known = bool(parse_usd(amount, "the budget", MAX_USD, unit=""))
            case _:
                command, job, is_known = "", "", False

        if not is_known or job not in self._reader.submit(self._jobs).result():
            raise BadRequest(f"nothing was done: no page asks for {words!r}")

        self._begun.begin(words)
        if command == RESUME:
            return f"run/{quote(job, safe='')}"
        return ""

    def prepare(self) -> None:
        """Reads the log while the browser starts: the first reading of many runs takes seconds."""
        self._reader.submit(self._answer, "", "")

    def close(self) -> None:
        self._reader.submit(self._close).result()
        self._reader.shutdown()

    def _close(self) -> None:
        for watched in self._watched.values():
            watched.watcher.close()

    def _jobs(self) -> set[str]:
        views = latest_views(self._settings, self._attended()).runs
        waits = waiting_jobs(Paths(self._settings.home))
        return {view.job for view in views} | {job.name for job in waits}

    def _answer(self, path: str, query: str) -> str | None:
        name, _, job = path.partition("/")
        try:
            if path == "":
                paths = Paths(self._settings.home)
                read = latest_views(self._settings, self._attended())
                waits = [waiting_json(each, paths) for each in waiting_jobs(paths)]
                notices = (*read.damage, *dropped(read.lost), *self._begun.remarks())
                today, shows_all = self._today() if read.runs else None, query == "all"
                nights = self._nights()
                return overview_page(read.runs, waits, nights, notices, today, whole=shows_all)
            if path == "costs":
                asked = parse_qs(query, keep_blank_values=True)

                asked_job = asked.get("job", [""])[0]
                since = "" if asked_job or "all" in asked else _RECENT
                title, address = "Last 30 days", "costs"
                if asked_job:
                    title, address = asked_job, f"run/{quote(asked_job, safe='')}"
                elif since:
                    title, address = "All time", "?all"

                other = el("a", title, href=address)
                links_there = el("nav", el("a", "All runs", href="./"), other)
                return page.html(self._costs(asked_job, since), el("style", LINKS), links_there)
            if name == "run" and job:
                return self._run(unquote(job))
            return None
        except (SpotctlError, PricingDataError, ProviderError) as error:
            home = "../" if "/" in path else "./"
            links = el("nav", el("a", "All runs", href=home))
            notice = paragraph(str(error), "notice")
            return renewed_page("spotctl", links, el("h1", "No page"), notice)

    def _run(self, job: str) -> str:
        watched = self._watched.pop(job, None)
        if watched is None:
            watcher = Watcher(job, self._settings, self._attended())
            watched = _WatchedRun(watcher)

        # The last one is the one that was looked at last.
        self._watched[job] = watched
        if len(self._watched) > _MAX_WATCHED:
            oldest = next(iter(self._watched))
            self._watched.pop(oldest).watcher.close()
        run, state = watched.watcher.look(), watched.watcher.state

        with suppress(SpotctlError, ProviderError):
            if watched.output is None or watched.run != state.run:
                assert state.began is not None
                spec = restored(state.began.spec, self._settings.home)
                watched.run, watched.output = state.run, RunOutput(spec, state.run, self._settings)
                watched.lines.clear()
            new = watched.output.new_lines(state, last=state.ended is not None)
            watched.lines.extend(f"{line.machine}: {line.text}" for line in new)

        return run_page(run, watched.lines, self._begun.remarks())


class PageServer(ThreadingHTTPServer):
    """Answers GET of addresses that begin with the token, from this computer, and POST of forms on
    its own pages.
    """

    def __init__(self, port: int, token: str, answer: AnswerPath, begin: BeginCommand) -> None:
        self.token, self.answer, self.begin, self.asked = token, answer, begin, False
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "not a port"
            raise BadRequest(
                f"--port {port}: cannot listen on 127.0.0.1: {why}; 0 chooses a free port"
            ) from error

    @property
    def hosts(self) -> tuple[str, ...]:
        """The only hosts that are answered: a page of somebody else cannot read these under a name
        of its own.
        """
        return tuple(f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"


@contextmanager
def opened(server: PageServer, say: Callable[[str], object]) -> Iterator[None]:
    """Opens the page in a browser while the block serves it. `say` gets a remark if no browser asks
    for the page.

    Every user of the computer can read the browser's command line: it names a file that only this
    user can read, and that leads to the address.
    """
    with tempfile.TemporaryDirectory(prefix="spotctl-ui-") as folder:
        page = Path(folder, "spotctl.html")
        page.write_text(
            f'<meta http-equiv="refresh" content="0; url={server.address}"><p>{server.address}</p>'
        )
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
            refused = self._refusal()
            if refused is not None:
                self._send(*refused)
                return

            address = urlsplit(self.path)
            name = address.path.removeprefix("/").partition("/")[2]
            page = self.server.answer(name, address.query)
            if page is None:
                self._send(HTTPStatus.NOT_FOUND, "There is no such page.\n")
            else:
                self._send(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        with suppress(ConnectionError):
            refused = self._refusal(from_page=True)
            status, said = refused or self._command()
            if refused is None and status is HTTPStatus.SEE_OTHER:
                self._send(status, "", {"Location": f"/{self.server.token}/{said}"})
            else:
                self._send(status, said)

    def _send(self, status: HTTPStatus, page: str, more: Mapping[str, str] = _NO_HEADERS) -> None:
        body = page.encode()
        self.send_response(status)
        for name, value in {**_HEADERS, **more, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _refusal(self, *, from_page: bool = False) -> tuple[HTTPStatus, str] | None:
        """Why a request is not answered. A form has to come `from_page`: the page of another server
        cannot send one.
        """
        token, host = (
            urlsplit(self.path).path.removeprefix("/").partition("/")[0],
            self.headers.get("Host"),
        )

        if host not in self.server.hosts:
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                "This is not the address that spotctl ui printed.\n",
            )
        if not compare_digest(token.encode(), self.server.token.encode()):
            return HTTPStatus.FORBIDDEN, "Open the address that spotctl ui printed.\n"

        if from_page and self.headers.get("Origin") != f"http://{host}":
            return (
                HTTPStatus.FORBIDDEN,
                "Nothing was done: this form is not on a page of spotctl ui.\n",
            )

        self.server.asked = True
        return None

    def _command(self) -> tuple[HTTPStatus, str]:
        """Begins what a form asks for; returns the path of the next page."""
        length = self.headers.get("Content-Length", "")
        address = urlsplit(self.path).path
        _, _, form = address.partition(f"/{self.server.token}/")
        if form != "do" or not length.isdecimal():
            return HTTPStatus.NOT_FOUND, "There is no such form.\n"

        sent = self.rfile.read(min(int(length), _MAX_BYTES))
        fields = parse_qs(sent.decode(errors="replace"))
        asked, typed = (fields.get(name, [""])[0].strip() for name in ("asked", "typed"))
        more, confirmed = "", typed
        if asked.endswith(f" {BUDGET}"):
            more, confirmed = " and the dollars", typed.rpartition(" ")[0]
        if not asked or asked != confirmed:
            return HTTPStatus.BAD_REQUEST, f"Nothing was done: go back, and type {asked}{more}\n"

        try:
            return HTTPStatus.SEE_OTHER, self.server.begin(typed)
        except (SpotctlError, PricingDataError, ProviderError) as error:
            return HTTPStatus.BAD_REQUEST, f"{error}\n"

    # The name in http.server.
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing: the terminal shows the address."""
