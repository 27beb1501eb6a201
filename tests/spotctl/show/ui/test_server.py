"""The server of pages, below `spotctl ui`."""

from __future__ import annotations

import socket
import struct
from threading import Event, Thread

import pytest

from spotctl.show.ui.server import PageServer


def test_a_browser_that_leaves_a_page_leaves_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The page is answered to a connection that was reset meanwhile."""
    asked, left = Event(), Event()

    def answer(path: str, query: str) -> str:  # noqa: ARG001
        asked.set()
        left.wait()
        return "page" * 10**6

    with PageServer(0, "token", answer, str) as server:
        # Its end waits for the answer.
        server.daemon_threads = False
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as browser:
            browser.sendall(f"GET /token/ HTTP/1.1\r\nHost: {server.hosts[0]}\r\n\r\n".encode())
            asked.wait()
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left.set()
        server.shutdown()
        thread.join()
    assert capfd.readouterr().err == ""
