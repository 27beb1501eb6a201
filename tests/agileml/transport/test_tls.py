"""Links under TLS: the same messages, and who cannot prove itself is refused before the job's own handshake."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

import numpy as np
import pytest

from agileml.transport import BadAddress, Connected, Received, Rejected, TcpAddress, Tls, TransportSettings
from tests.agileml.transport.links import Meeting

HERE = TcpAddress("127.0.0.1", 0)


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of its own making for 127.0.0.1, and its key."""
    pytest.importorskip("cryptography", reason="the certificate of this test is made with the package cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(name)])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, secret = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, secret


def tls(folder: Path, name: str = "node", trusts: str = "node", hostname: str | None = None) -> TransportSettings:
    own = certificate(folder, name)
    trusted = own[0] if trusts == name else certificate(folder, trusts)[0]
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*own)
    client = ssl.create_default_context(cafile=str(trusted))
    return TransportSettings(tls=Tls(server, client, hostname))


@pytest.mark.parametrize("hostname", [None, "node"])
def test_messages_of_all_sizes_pass_both_ways(meeting: Meeting, folder: Path, hostname: str | None) -> None:
    settings = tls(folder, hostname=hostname)
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


def test_nothing_is_left_in_the_tls_layer(meeting: Meeting, folder: Path) -> None:
    """A burst of small messages arrives in few records, of which the selector knows nothing once they are read."""
    settings = tls(folder)
    a, b = meeting.add("a", settings), meeting.add("b", settings)
    b.connect("a", a.listen(HERE))
    meeting.until(lambda: "b" in a.peers and "a" in b.peers)
    for number in range(5000):
        b.send("a", "step", b"%d" % number)
    meeting.until(lambda: len(meeting.of("a", Received)) == 5000)
    assert [int(event.header) for event in meeting.of("a", Received)] == list(range(5000))


def test_an_untrusted_server_is_refused(meeting: Meeting, folder: Path) -> None:
    place = meeting.add("a", tls(folder)).listen(HERE)
    for name, settings in (("b", tls(folder, "other", "other")), ("c", tls(folder, hostname="elsewhere"))):
        meeting.add(name, settings).connect("a", place)
        assert "certificate verify failed" in meeting.first(name, Rejected).reason


def test_tls_and_plain_endpoints_do_not_connect(meeting: Meeting, folder: Path) -> None:
    secure, plain = meeting.add("a", tls(folder)), meeting.add("b")
    plain.connect("a", secure.listen(HERE))
    meeting.first("b", Rejected)
    secure.connect("b", plain.listen(HERE))
    meeting.first("a", Rejected)
    assert not meeting.of("a", Connected)
    assert not meeting.of("b", Connected)


def test_a_silent_client_does_not_block_others(meeting: Meeting, folder: Path) -> None:
    settings = tls(folder)
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
