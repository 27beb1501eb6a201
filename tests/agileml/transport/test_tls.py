"""Links under TLS: the same messages, and who cannot prove itself is refused before the job's own
handshake.
"""

from __future__ import annotations

import socket
import ssl

import numpy as np
import pytest

from agileml.transport import (
    Connected,
    Identity,
    Received,
    Rejected,
    TcpAddress,
    connector,
)
from agileml.transport.certificates import (
    contexts_of,
    credentials_of,
    job_mark,
)
from agileml.transport.handshake import Handshake
from tests.agileml.transport.links import SECRET, Meeting

OTHER = b"another secret of another job's nodes"
HERE = TcpAddress("127.0.0.1", 0)


def test_a_node_with_its_own_credentials_takes_part_in_all_its_processes(meeting: Meeting) -> None:
    place, own = meeting.add("a").listen(HERE), credentials_of(SECRET, "b").encoded()
    for name in ("b", "b@heartbeat", "blobs/b/1"):
        meeting.add(name, secret=own).connect("a", place)
        assert meeting.first(name, Connected).peer == "a"


@pytest.mark.parametrize(
    "claimed", ["controller", "c", "c@heartbeat", "blobs/c/1", "blobs/c/b", "b2"]
)
def test_a_node_cannot_speak_as_another(meeting: Meeting, claimed: str) -> None:
    """Its endpoint was changed to introduce itself under that name, with the certificate that it
    has.
    """
    place, impostor = (
        meeting.add("a").listen(HERE),
        meeting.add("b", secret=credentials_of(SECRET, "b").encoded()),
    )
    impostor._connector._identity = Identity(claimed, "node", "1")
    contexts = contexts_of(credentials_of(SECRET, "b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connector, "credentials_of", lambda _, name: name)
        patch.setattr(connector, "contexts_of", lambda name: of_name(name, contexts))
        impostor.connect("a", place)
        rejected = meeting.first("a", Rejected)
    assert rejected.reason == f"'b' introduced itself as {claimed!r}"
    assert not meeting.of("a", Connected)


def of_name(
    name: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts_of(credentials_of(SECRET, "a")) if name == "a" else contexts


def test_messages_of_all_sizes_pass_both_ways(meeting: Meeting) -> None:
    a, b = meeting.add("a"), meeting.add("b")
    b.connect("a", a.listen(HERE))
    meeting.until(lambda: "b" in a.peers and "a" in b.peers)
    arrays = [np.arange(size, dtype=np.float32) for size in (0, 1, 1000, 100_000, 3_000_000)]
    for number in range(3):
        for array in arrays:
            a.send("b", "from a", b"%d" % number, [array, array[:7]])
            b.send("a", "from b", b"%d" % number, [array])
        meeting.turn()
    meeting.until(lambda: all(len(meeting.of(name, Received)) == 15 for name in "ab"))
    for name in "ab":
        for number, event in enumerate(meeting.of(name, Received)):
            assert (event.arrays[0] == arrays[number % 5]).all()


def test_nothing_is_left_in_the_tls_layer(meeting: Meeting) -> None:
    """A burst of small messages arrives in few records, of which the selector knows nothing once
    they are read.
    """
    a, b = meeting.add("a"), meeting.add("b")
    b.connect("a", a.listen(HERE))
    meeting.until(lambda: "b" in a.peers and "a" in b.peers)
    for number in range(5000):
        b.send("a", "step", b"%d" % number)
    meeting.until(lambda: len(meeting.of("a", Received)) == 5000)
    assert [int(event.header) for event in meeting.of("a", Received)] == list(range(5000))


@pytest.mark.parametrize("listener", [SECRET, OTHER])
def test_another_secret_is_refused_for_good_before_the_jobs_own_handshake(
    meeting: Meeting, listener: bytes
) -> None:
    """The connecting side learns it from the certificate, and sends nothing about itself."""
    place = meeting.add("a", secret=listener).listen(HERE)
    meeting.add("b", secret=OTHER if listener == SECRET else SECRET).connect("a", place)
    rejected = meeting.first("b", Rejected)
    assert rejected.permanent
    assert "does not hold this job's secret" in rejected.reason
    assert not meeting.of("a", Connected)


def test_a_client_without_a_certificate_is_refused(meeting: Meeting) -> None:
    place = meeting.add("a").listen(HERE)
    assert isinstance(place, TcpAddress)
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((place.host, place.port)) as plain:
        plain.setblocking(False)
        with anonymous.wrap_socket(plain, do_handshake_on_connect=False) as client:
            meeting.until(lambda: refused(client))
    assert not meeting.of("a", Connected)


def refused(client: ssl.SSLSocket) -> bool:
    try:
        client.do_handshake()
        client.recv(1)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except ssl.SSLError as error:
        return error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    raise AssertionError("a client without a certificate was served")


def test_what_does_not_speak_tls_is_not_tried_again(meeting: Meeting) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting.add("a").connect("b", TcpAddress("127.0.0.1", server.getsockname()[1]))
        meeting.turn()
        with server.accept()[0] as plain:
            plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            rejected = meeting.first("a", Rejected)
    assert (rejected.permanent, "does not speak TLS" in rejected.reason) == (True, True)
    assert not meeting.of("a", Connected)


def test_who_does_not_speak_tls_is_refused(meeting: Meeting) -> None:
    """Over TCP the job's own handshake is not read without it, however right its key is."""
    place = meeting.add("a").listen(HERE)
    assert isinstance(place, TcpAddress)
    with socket.create_connection((place.host, place.port)) as plain:
        plain.sendall(
            Handshake(Identity("b", "node", "1"), job_mark(SECRET), expected="a").opening()
        )
        plain.setblocking(False)
        meeting.until(lambda: closed(plain))
    assert not meeting.of("a", Connected)


def closed(plain: socket.socket) -> bool:
    try:
        while plain.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_silent_client_does_not_block_others(meeting: Meeting) -> None:
    place = meeting.add("a").listen(HERE)
    assert isinstance(place, TcpAddress)
    with socket.create_connection((place.host, place.port)):
        meeting.add("b").connect("a", place)
        meeting.first("b", Connected)
