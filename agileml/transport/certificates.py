"""TLS between the processes of a job: one certificate that each of them derives from the job's secret.

The private key is derived from the secret (HKDF-SHA256), and Ed25519 signatures are deterministic, so every process
makes the same self-signed certificate and trusts no other. Presenting it proves knowledge of the secret, for clients
and servers alike. Session keys are fresh for each connection: a secret that leaks later reveals no recorded traffic.
"""

import datetime
import ssl
import tempfile
from functools import lru_cache

from agileml.transport.handshake import check_secret

HOSTNAME = "job.agileml"
"""The name in the certificate: members of a job are recognized by its secret, not by the names of their hosts."""

_CONTEXT = b"agileml TLS key, version 1"
_SERIAL = 1
# The clocks of machines may be wrong, and a certificate lives no longer than the job's secret.
_BEGIN, _END = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1970, 9999))


@lru_cache(maxsize=8)
def contexts_of(secret: bytes) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS 1.3 that connects holders of the same secret only: for servers, and for clients.

    Raises BadSecret if the secret is too short.
    """
    check_secret(secret)
    certificate, key = certificate_and_key(secret)
    server, client = (ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    # The ssl module reads keys from files only. This one is for its owner alone, and gone after the next lines.
    with tempfile.NamedTemporaryFile(prefix="agileml-") as file:
        file.write(key + certificate)
        file.flush()
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=certificate.decode())
            context.load_cert_chain(file.name)
    # Sessions are not resumed.
    server.num_tickets = 0
    return server, client


def certificate_and_key(secret: bytes) -> tuple[bytes, bytes]:
    """The certificate and its private key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    seed = HKDF(hashes.SHA256(), length=32, salt=None, info=_CONTEXT).derive(secret)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOSTNAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), _SERIAL, _BEGIN, _END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOSTNAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private
