"""Who may speak under which name: credentials, and TLS between processes that hold some.

A job has a secret, which only its launcher and its controller know. From it follow a certificate
authority and, for each node, a key and a certificate that carries the node's name. A node is given
its own credentials and nothing else: it can prove to every process of the job who it is, it
recognizes every other process, and it can speak under no other name. So the job can also shut out a
single node.

All keys are derived (HKDF-SHA256) and Ed25519 signatures are deterministic, so the controller and a
launcher that was restarted make the same certificates from the same secret. Session keys are fresh
for each connection: a key that leaks later reveals no recorded traffic.

What must never happen: the secret, or another node's key, reaches a machine that is a node.
"""

import datetime
import ssl
import tempfile
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from hmac import digest
from typing import TYPE_CHECKING

import msgspec

from agileml.errors import BadSecret
from agileml.transport.handshake import check_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HOSTNAME = "job.agileml"
"""The host name in every certificate: members of a job are recognized by their names in it, not by
their hosts."""

NAME = "agileml:"
"""With this before it, a node's name is a URI in its certificate."""

_TEXT = b"agileml-node:"
"""With these bytes before them, encoded credentials stand wherever a job's secret may stand."""

_SERIAL = 1
# The clocks of machines may be wrong, and a certificate lives no longer than the job's secret.
_BEGIN, _END = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1970, 9999))


@dataclass(frozen=True, slots=True)
class Credentials:
    """The means to take part in a job under one name.

    `job` tells jobs of one computer apart. It is no secret among the nodes of the job. Certificates
    and key are PEM.
    """

    name: str
    job: bytes = field(repr=False)
    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    def encoded(self) -> bytes:
        """One line of text; `credentials_of` reads it."""
        return _TEXT + b64encode(msgspec.msgpack.encode(self))


@lru_cache(maxsize=64)
def credentials_of(secret: bytes, name: str) -> Credentials:
    """The credentials for a name: derived from the job's secret, or those that stand in its place.

    Raises BadSecret if the secret is too short, or if the credentials are for another name.
    """
    if secret.startswith(_TEXT):
        try:
            given = msgspec.msgpack.decode(b64decode(secret.removeprefix(_TEXT)), type=Credentials)
        except ValueError as error:
            raise BadSecret(f"the credentials of node {name!r} are damaged: {error}") from None
        if given.name != name:
            raise BadSecret(
                f"the credentials are for node {given.name!r}, not for {name!r}: join under that "
                "name"
            )
        return given

    check_secret(secret)
    authority, _ = certificate_and_key(secret)
    certificate, key = certificate_and_key(secret, name)
    return Credentials(name, job_mark(secret), authority, certificate, key)


def job_mark(secret: bytes) -> bytes:
    """The mark that all processes of a job have in common, from its secret or from a node's
    credentials.
    """
    if secret.startswith(_TEXT):
        return msgspec.msgpack.decode(b64decode(secret.removeprefix(_TEXT)), type=Credentials).job
    return digest(secret, b"agileml job", "sha256")


@lru_cache(maxsize=8)
def contexts_of(credentials: Credentials) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS 1.3 that connects processes of the same job only: for servers, and for clients."""
    server, client = (
        ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )

    # The ssl module reads keys from files only. This one is for its owner alone, and gone after the
    # next lines.
    with tempfile.NamedTemporaryFile(prefix="agileml-") as file:
        file.write(credentials.key + credentials.certificate)
        file.flush()
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=credentials.authority.decode())
            context.load_cert_chain(file.name)

    # Sessions are not resumed.
    server.num_tickets = 0
    return server, client


def certificate_and_key(secret: bytes, name: str | None = None) -> tuple[bytes, bytes]:
    """The certificate of a job's authority, or of the node of this name, and the private key for
    it, as PEM.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    signer = _private_key(secret, b"agileml authority, version 2")
    key = (
        signer
        if name is None
        else _private_key(secret, b"agileml node, version 2: " + name.encode())
    )

    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOSTNAME)])
    subject = (
        issuer
        if name is None
        else x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    )

    names: list[x509.GeneralName] = [x509.DNSName(HOSTNAME)]
    if name is not None:
        names.append(x509.UniformResourceIdentifier(NAME + name))

    rights = x509.BasicConstraints(ca=name is None, path_length=0 if name is None else None)
    certificate = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), _SERIAL, _BEGIN, _END)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(rights, critical=True)
        .sign(signer, None)
    )

    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(pem), private


def _private_key(secret: bytes, purpose: bytes) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return Ed25519PrivateKey.from_private_bytes(
        HKDF(hashes.SHA256(), 32, None, purpose).derive(secret)
    )
