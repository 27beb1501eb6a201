"""Copies a file from one machine of a run to another: `python -m spotctl.agent.data.peer_files
serve|fetch FILE`.

A launcher with a slow network sends a file to one machine; the others get it from there. The
launcher gives both sides the same certificate on their standard input, so each recognizes the
other. `serve` prints its address, and ends with its standard input; `fetch` writes the file that
the other side serves.
"""

import json
import shutil
import socket
import ssl
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 20.0
_ELSEWHERE = ("192.0.2.1", 9)
"""An address outside (RFC 5737); no packet is sent there."""


def context(given: dict[str, Any], protocol: int) -> ssl.SSLContext:
    """TLS that connects holders of the given certificate only."""
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=given["certificate"])

    # The ssl module reads keys from files only; this one is gone after the next line.
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(given["key"] + given["certificate"])
        file.flush()
        made.load_cert_chain(file.name)
    return made


def serve(path: Path, given: dict[str, Any], listener: socket.socket) -> None:
    """Sends the file to everyone who connects and knows the certificate, each in a thread of its
    own.
    """
    tls = context(given, ssl.PROTOCOL_TLS_SERVER)

    def answer(peer: socket.socket) -> None:
        peer.settimeout(ANSWER_SECONDS)
        with (
            suppress(OSError),
            tls.wrap_socket(peer, server_side=True) as secured,
            path.open("rb") as file,
        ):
            secured.sendfile(file)
            secured.unwrap()

    while True:
        peer, _ = listener.accept()
        threading.Thread(target=answer, args=(peer,), daemon=True).start()


def main() -> int:
    """Reads what the launcher gives as a line of JSON."""
    verb, path = sys.argv[1], Path(sys.argv[2])
    given = json.loads(sys.stdin.readline())
    if verb == "fetch":
        # What the other side serves. OSError: it does not answer, or does not know the certificate.
        try:
            tls = context(given, ssl.PROTOCOL_TLS_CLIENT)
            with (
                socket.create_connection((given["host"], given["port"]), ANSWER_SECONDS) as plain,
                tls.wrap_socket(plain, server_hostname=given["name"]) as secured,
                secured.makefile("rb") as source,
                path.open("wb") as file,
            ):
                shutil.copyfileobj(source, file, 1 << 20)
        except OSError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        return 0

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        # This machine's address in its network.
        route.connect(_ELSEWHERE)
        address = str(route.getsockname()[0])
    listener = socket.create_server((address, 0))
    threading.Thread(target=serve, args=(path, given, listener), daemon=True).start()
    print(*listener.getsockname(), flush=True)  # noqa: T201
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
