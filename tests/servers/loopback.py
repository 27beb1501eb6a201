"""An HTTP server on 127.0.0.1 that simulates a cloud's API, with faults that a test schedules."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """A request as received; header names in lower case, query values as lists. `client` is the
    sender's address.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    client: str = ""

    def json(self) -> Any:  # noqa: ANN401  # JSON is any value
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer. `cut` bytes are missing at its end, although Content-Length counts them.

    Of an answer that is `lost`, nothing is sent: the connection ends after the request was carried
    out.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    lost: bool = False

    @classmethod
    def of_json(cls, value: object, status: int = 200, **headers: str) -> Reply:
        return cls(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
        )


class Api(Protocol):
    """A simulated cloud. An unknown request gets a reply with status 4xx."""

    def answer(self, request: Request) -> Reply: ...


@dataclass
class Fault:
    """The next `times` requests to a path containing `path` (after `skip` of them) get `reply` or a
    truncated one.

    `lost`: the request is carried out, and its answer is lost. `delay_seconds`: the answer comes
    late, or the `reply`.
    """

    path: str
    reply: Reply | None = None
    cut: int = 0
    times: int = 1
    skip: int = 0
    lost: bool = field(default=False, kw_only=True)
    delay_seconds: float = field(default=0.0, kw_only=True)

    def strikes(self, request: Request) -> bool:
        if self.path not in unquote(request.path) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True

    def applied(self, reply: Reply) -> Reply:
        if self.reply is not None:
            return self.reply
        time.sleep(self.delay_seconds)
        return Reply(reply.status, reply.body, reply.headers, self.cut, self.lost)


@dataclass
class LoopbackServer:
    """A running server: its address, the requests received, and the scheduled faults."""

    api: Api
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reply_to(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self.faults if fault.strikes(request)), None)
        if fault is not None and fault.reply is not None:
            if fault.delay_seconds:
                time.sleep(fault.delay_seconds)
            return fault.reply
        reply = self.api.answer(request)
        return fault.applied(reply) if fault else reply


def handler_of(answer: Callable[[Request], Reply]) -> type[BaseHTTPRequestHandler]:
    """A handler that lets `answer` answer every request, in the thread of its connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # head and body are two writes; the second would wait for an acknowledgement
        )

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = parse_qs(parts.query, keep_blank_values=True)
            body = self.rfile.read(length)
            self.send(
                answer(
                    Request(self.command, parts.path, query, headers, body, self.client_address[0])
                )
            )

        # The base class's names.
        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def send(self, reply: Reply) -> None:
            if reply.lost:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            # A client that stopped waiting is not an error of the server.
            with suppress(ConnectionError):
                self.wfile.write(
                    b"" if self.command == "HEAD" else reply.body[: len(reply.body) - reply.cut]
                )
            if reply.cut:
                self.close_connection = True

        # The base class's name.
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


class QuietServer(ThreadingHTTPServer):
    """Says nothing of connections that end in the middle of a call; its words would be taken for
    those of a test.
    """

    # As socketserver declares it.
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """All other errors are shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving(api: Api) -> Iterator[LoopbackServer]:
    """Serves an API on a free port of 127.0.0.1 for the duration of a `with` block."""
    state = LoopbackServer(api)
    server = QuietServer(("127.0.0.1", 0), handler_of(state.reply_to))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
