"""Who a machine of AWS is to S3."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from obstore.store import S3Store

from spotctl.agent.data.locations import place_of
from spotctl.clouds.aws import storage as aws


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
