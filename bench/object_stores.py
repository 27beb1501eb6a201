"""The processor time of object stores: obstore, as machines and launchers use it, compared with
boto3.

    python -m bench.object_stores

The store answers on this computer, in a process of its own, and keeps nothing. Both send and
receive pieces of the same size, and nothing is encrypted.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from boto3 import Session
from boto3.s3.transfer import TransferConfig

from bench.harness import Row, shown, table, times_faster
from spotctl.agent.data.locations import place_of
from spotctl.agent.data.stores import PART_BYTES, PARTS_AT_ONCE, Bucket
from tests.servers.loopback import Reply, Request, handler_of

MIB, RUNS = 64, 5
SIZE, PIECE = MIB << 20, 1 << 20
KEYS, PAGE = 10_000, 1000


_CONTENT = os.urandom(PIECE) * MIB
_HEADERS = {"ETag": '"1"', "Last-Modified": "Thu, 26 Nov 2026 07:00:00 GMT"}


def _answer(request: Request) -> Reply:
    """As much of S3 as both clients need."""
    if request.method == "POST":
        return Reply(200, b"<R><UploadId>1</UploadId><ETag>1</ETag></R>", _HEADERS)
    if "list-type" in request.query:
        return Reply(200, _page(int(request.query.get("continuation-token", ["0"])[0])), _HEADERS)
    return Reply(200, b"" if request.method == "PUT" else _CONTENT, _HEADERS)


def _page(first: int) -> bytes:
    last = first + PAGE
    keys = "".join(
        f"<Contents><Key>data/{number:06}</Key><LastModified>2026-11-26T07:00:00Z</LastModified>"
        f"<ETag>1</ETag><Size>10</Size></Contents>"
        for number in range(first, last)
    )
    token = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < KEYS else ""
    more = "true" if token else "false"
    return f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{keys}</ListBucketResult>".encode()


def _serve(port: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(_answer))
    port.send(server.server_port)
    server.serve_forever()


@contextmanager
def _clients() -> Iterator[tuple[Bucket, Any]]:
    """spotctl's bucket and boto3's client of one server."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs,), daemon=True
    )
    process.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    variables = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    try:
        with patch.dict(os.environ, variables | {"AWS_ENDPOINT_URL_S3": url}):
            place = place_of("s3://bucket")
            assert place is not None
            yield place.bucket, Session(region_name="us-east-1").client("s3")
    finally:
        process.terminate()
        process.join()


def run() -> str:
    """Measures uploads, downloads and lists of both clients in turns."""
    parts = TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_concurrency=PARTS_AT_ONCE,
    )
    with _clients() as (bucket, client):
        rows = [
            _throughput(
                f"{MIB} MiB up",
                lambda: bucket.write(
                    "k", (_CONTENT[at : at + PIECE] for at in range(0, SIZE, PIECE))
                ),
                lambda: client.upload_fileobj(_Reader(_CONTENT), "bucket", "k", Config=parts),
            ),
            _throughput(
                f"{MIB} MiB down",
                lambda: _count(bucket.get("k")),
                lambda: _count(
                    client.get_object(Bucket="bucket", Key="k")["Body"].iter_chunks(PIECE)
                ),
            ),
        ]
        own, peer = _processor_seconds(lambda: bucket.list("data/"), partial(_list, client))
        rows.append(
            Row(f"{KEYS:,} objects listed", shown(own), shown(peer), times_faster(own, peer))
        )
    return table(
        "Object stores",
        f"Processor time of this process, median of {RUNS} runs, in turns with boto3; the store is "
        "on this computer.",
        rows,
    )


class _Reader:
    """A stream as boto3 reads it, which does not know its size."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = memoryview(content), 0

    def read(self, size: int = -1) -> bytes:
        first = self._at
        self._at = len(self._content) if size < 0 else min(first + size, len(self._content))
        return bytes(self._content[first : self._at])


def _count(pieces: Iterator[Any]) -> None:
    received = sum(len(piece) for piece in pieces)
    assert received == SIZE


def _list(client: Any) -> list[str]:  # noqa: ANN401 - boto3's client
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="data/")
    return [item["Key"] for page in pages for item in page["Contents"]]


def _throughput(what: str, ours: Callable[[], object], theirs: Callable[[], object]) -> Row:
    own, peer = _processor_seconds(ours, theirs)
    return Row(what, f"{MIB / own:,.0f} MiB/s", f"{MIB / peer:,.0f} MiB/s", times_faster(own, peer))


def _processor_seconds(*actions: Callable[[], object]) -> tuple[float, float]:
    """The median processor time of two actions that are carried out in turns; the first turn warms
    caches.
    """
    times: list[list[float]] = []
    for _ in range(RUNS + 1):
        turn = []
        for action in actions:
            began = time.process_time()
            action()
            turn.append(time.process_time() - began)
        times.append(turn)
    ours, theirs = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return ours, theirs


if __name__ == "__main__":
    print(run())
