"""A webhook receiver on the loopback interface with scripted answers; it keeps what it receives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Hook:
    """Answers with these status codes in turn, then always with 200."""

    answers: Sequence[int] = ()
    url: str = ""
    got: list[Any] = field(default_factory=list)
    beats: list[str] = field(default_factory=list)


@contextmanager
def hook(*answers: int) -> Iterator[Hook]:
    """Runs a receiver."""
    one = Hook(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.beats.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            one.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            code = one.answers[len(one.got) - 1] if len(one.got) <= len(one.answers) else 200
            self.send_response(code)
            if code == 302:
                self.send_header("Location", f"{one.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.url = f"http://127.0.0.1:{server.server_port}/services/T0/xyz"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
