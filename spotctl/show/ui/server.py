"""A server of pages for one person: on 127.0.0.1 alone, read only, behind a token in the address."""

from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from spotctl.home.errors import BadRequest
from spotctl.show.ui.page_shell import POLICY

AnswerPath = Callable[[str, str], str | None]
"""The page at a path below the token, with the query of the address; None if there is none."""

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Answers GET of addresses that begin with the token, from this computer."""

    def __init__(self, port: int, token: str, answer: AnswerPath) -> None:
        self.token, self.answer = token, answer
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
        page = self.server.answer(path, address.query)
        return (HTTPStatus.NOT_FOUND, "There is no such page.\n") if page is None else (HTTPStatus.OK, page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Says nothing: the terminal shows the address."""
