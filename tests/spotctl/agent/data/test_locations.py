"""Locations in job files, and the stores that they name."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from obstore.store import S3Store

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.data import stores
from spotctl.agent.data.locations import place_of, shared_object, store_at
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.aws import storage as aws
from tests.servers.azurite import AzuriteUser


@pytest.mark.parametrize("status", [200, 301, 403])
def test_requests_are_signed_for_the_region_of_the_bucket(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Head(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("x-amz-bucket-region", "ap-south-1")
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silence."""

    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Head)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        monkeypatch.setattr(aws, "S3", f"http://127.0.0.1:{server.server_address[1]}")
        assert _client_settings("s3://bucket/x") == ("ap-south-1", "true")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    # Where nothing answers, the machine's own region is the best guess. Certificates cover no
    # bucket with a dot.
    monkeypatch.setattr(aws, "S3", "http://127.0.0.1:1")
    assert _client_settings("s3://my.bucket/x") == ("eu-west-1", "false")


def _client_settings(location: str) -> tuple[str | None, str | None]:
    """The region of a bucket's client, and whether the bucket is part of the host's name."""
    place = place_of(location)
    assert place is not None
    client = place.bucket._client()
    assert isinstance(client, S3Store)
    config = client.config
    return config.get("region"), str(config.get("virtual_hosted_style_request")).lower()


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(store_at(str(tmp_path)), FileBlobStore)


def test_a_shared_object_is_in_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="not in an object store"):
        shared_object(str(tmp_path / "claim"))


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(StoreRefused, match="ftp://x: not a path"):
        store_at("ftp://x")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        (
            "SSL_CERT_FILE",
            "none.pem",
            "this computer knows no authorities of certificates: install the package "
            "ca-certificates",
        ),
        (
            "AZURE_STORAGE_BLOB_ENDPOINT",
            "no address",
            "Unable parse source url. Url: no address, Error: relative URL without a base$",
        ),
        (
            "AZURE_STORAGE_BLOB_ENDPOINT",
            "http://127.0.0.1:1",
            "no answer: HTTP error: .*: Connection refused$",
        ),
    ],
)
def test_a_store_out_of_reach_is_refused_in_one_line(
    variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv(variable, value)
    place = place_of("az://container@account/x", lambda _: AzuriteUser())
    assert place is not None
    with pytest.raises(StoreRefused, match=f"^az://container@account.*: {why}") as refused:
        place.bucket.list("")
    assert "\n" not in str(refused.value)
