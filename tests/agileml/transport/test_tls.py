"""Links under TLS: the same messages, and who cannot prove itself is refused before the job's own handshake."""

from __future__ import annotations

import socket
import ssl

import numpy as np
import pytest

from agileml.transport import BadAddress, BadSecret, Connected, Received, Rejected, TcpAddress, Tls, TransportSettings
from agileml.transport.certificates import certificate_and_key, tls_of
from tests.agileml.transport.links import SECRET, Meeting

OTHER = b"another secret of another job's nodes"
HERE = TcpAddress("127.0.0.1", 0)


def tls(secret: bytes = SECRET) -> TransportSettings:
    return TransportSettings(tls=tls_of(secret))


def test_every_process_derives_the_same_certificate_from_the_secret() -> None:
    """Both sides made theirs alone, and one that was made in an hour with a wrong clock would be the same."""
    made = [certificate_and_key(secret) for secret in (SECRET, SECRET, OTHER)]
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
    assert made[0][1] != made[2][1]


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadSecret, match="use at least 16"):
        tls_of(b"short")


def test_messages_of_all_sizes_pass_both_ways(meeting: Meeting) -> None:
    settings = tls()
    a, b = meeting.add("a", settings), meeting.add("b", settings)
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
    """A burst of small messages arrives in few records, of which the selector knows nothing once they are read."""
    settings = tls()
    a, b = meeting.add("a", settings), meeting.add("b", settings)
    b.connect("a", a.listen(HERE))
    meeting.until(lambda: "b" in a.peers and "a" in b.peers)
    for number in range(5000):
        b.send("a", "step", b"%d" % number)
    meeting.until(lambda: len(meeting.of("a", Received)) == 5000)
    assert [int(event.header) for event in meeting.of("a", Received)] == list(range(5000))


@pytest.mark.parametrize("listener", [SECRET, OTHER])
def test_another_secret_is_refused_for_good_before_the_jobs_own_handshake(meeting: Meeting, listener: bytes) -> None:
    """The connecting side learns it from the certificate, and sends nothing about itself."""
    place = meeting.add("a", tls(listener)).listen(HERE)
    meeting.add("b", tls(OTHER if listener == SECRET else SECRET)).connect("a", place)
    rejected = meeting.first("b", Rejected)
    assert rejected.permanent
    assert "does not hold this job's secret" in rejected.reason
    assert not meeting.of("a", Connected)


def test_a_client_without_a_certificate_is_refused(meeting: Meeting) -> None:
    place = meeting.add("a", tls()).listen(HERE)
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


def test_tls_and_plain_endpoints_do_not_connect(meeting: Meeting) -> None:
    secure, plain = meeting.add("a", tls()), meeting.add("b")
    plain.connect("a", secure.listen(HERE))
    meeting.first("b", Rejected)
    secure.connect("b", plain.listen(HERE))
    rejected = meeting.first("a", Rejected)
    assert (rejected.permanent, "does not speak TLS" in rejected.reason) == (True, True)
    assert not meeting.of("a", Connected)
    assert not meeting.of("b", Connected)


def test_a_silent_client_does_not_block_others(meeting: Meeting) -> None:
    settings = tls()
    place = meeting.add("a", settings).listen(HERE)
    assert isinstance(place, TcpAddress)
    with socket.create_connection((place.host, place.port)):
        meeting.add("b", settings).connect("a", place)
        meeting.first("b", Connected)


def test_a_missing_tls_context_is_reported_at_once(meeting: Meeting) -> None:
    a = meeting.add("a", TransportSettings(tls=Tls()))
    with pytest.raises(BadAddress, match="without a server context"):
        a.listen(HERE)
    with pytest.raises(BadAddress, match="without a client context"):
        a.connect("b", HERE)


def test_unix_links_need_no_tls(meeting: Meeting) -> None:
    a, _ = meeting.pair(TransportSettings(tls=Tls()))
    assert a.peers == {"b"}
