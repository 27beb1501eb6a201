"""Every object store passes the suite of blob stores, and answers failures with one line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agileml.runtime.blob_store import BlobStore, FileBlobStore, UnreadableBlob
from spotctl.agent.data.blobs import bucket as blobs_bucket, http, objects, s3
from spotctl.agent.data.blobs.bucket import CopyingBucket, NoSuchObject, ObjectChanged, StoreRefused
from spotctl.agent.data.blobs.conditional import Content, shared_object
from spotctl.agent.data.blobs.locations import place_of, store_at
from spotctl.agent.data.blobs.s3 import S3Bucket
from spotctl.clouds.aws import storage as aws
from spotctl.clouds.azure import storage as azure
from tests.agileml.runtime.blob_store_suite import BlobStoreSuite, Damage, content
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.objects import AzureDialect, GoogleDialect, ObjectStore, S3Dialect, Stored, aws_signed, bearer

KEY, SECRET, TOKEN, REGION = "AKIATEST", "secret+/", "session-token", "eu-west-1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_SECONDS", 0.001)


class ObjectSuite(BlobStoreSuite):
    """The suite, with a bucket of one dialect on loopback, through a location as a job file names it."""

    location: str

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        raise NotImplementedError

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        raise NotImplementedError

    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
        with serving(self.served(monkeypatch)) as running:
            self.point(running.url, monkeypatch)
            yield running

    @pytest.fixture
    def bucket(self, server: LoopbackServer) -> ObjectStore:
        assert isinstance(server.api, ObjectStore)
        return server.api

    @pytest.fixture
    def store(self, server: LoopbackServer) -> BlobStore:  # noqa: ARG002 - it must run
        return store_at(self.location)

    @pytest.fixture
    def damage(self, bucket: ObjectStore) -> Damage:
        def change(name: str, changed: Callable[[bytes], bytes]) -> None:
            key = f"jobs/a b/{name}"
            bucket.objects[key] = Stored(changed(bucket.objects[key].content))

        return change

    def test_keys_are_below_the_location(self, store: BlobStore, bucket: ObjectStore) -> None:
        store.put("x/y", [b"."])
        bucket.objects["jobs/other/z"] = Stored(b"")
        bucket.objects["jobs/a b/no name"] = Stored(b"")
        assert set(bucket.objects) == {"jobs/a b/x/y", "jobs/other/z", "jobs/a b/no name"}
        assert store.list() == ["x/y"]

    def test_a_large_blob_goes_in_parts(
        self, store: BlobStore, bucket: ObjectStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "PART_BYTES", 1000)
        store.put("x", [bytes(700), b"1" * 2300, b"2" * 40])
        assert content(store, "x") == bytes(700) + b"1" * 2300 + b"2" * 40
        sizes = [len(one.body) for one in server.requests if one.method == "PUT" and len(one.body) >= 72]
        assert [size for size in sizes if size == 1000] == [1000] * 3
        assert set(bucket.objects) == {"jobs/a b/x"}

    def test_a_large_write_that_fails_leaves_the_earlier_blob(
        self, store: BlobStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "PART_BYTES", 1000)
        store.put("x", [b"kept"])

        def pieces() -> Iterator[bytes]:
            yield bytes(3000)
            raise OSError("no space left")

        with pytest.raises(OSError, match="no space left"):
            store.put("x", pieces())
        assert content(store, "x") == b"kept"
        server.faults.append(Fault("/x", Reply(403), skip=2, times=-1))
        with pytest.raises(StoreRefused, match="may not do this"):
            store.put("x", [bytes(3000)])
        server.faults.clear()
        assert content(store, "x") == b"kept"

    def test_passing_failures_are_repeated(self, store: BlobStore, server: LoopbackServer) -> None:
        server.faults.append(Fault("/x", Reply(503), times=3))
        store.put("x", [b"content"])
        server.faults.append(Fault("/x", Reply(500), times=2))
        assert content(store, "x") == b"content"

    def test_a_failure_that_lasts_is_one_line(self, store: BlobStore, server: LoopbackServer) -> None:
        server.faults.append(Fault("/", Reply(503, b"<Error><Code>SlowDown</Code></Error>"), times=-1))
        with pytest.raises(StoreRefused, match=r"/x: SlowDown$"):
            store.put("x", [b"."])
        with pytest.raises(StoreRefused, match="SlowDown"):
            store.list()
        with pytest.raises(UnreadableBlob, match="SlowDown"):
            content(store, "x")

    def test_a_broken_download_goes_on_where_it_was(self, store: BlobStore, server: LoopbackServer) -> None:
        blob = bytes(range(256)) * 10_000
        store.put("x", [blob])
        server.faults.append(Fault("/x", cut=1_300_000))
        if isinstance(server.api, AzureDialect):
            server.faults.append(Fault("/x", cut=100_000))
        assert content(store, "x") == blob
        assert "range" in server.requests[-1].headers

    @pytest.mark.parametrize("size", [0, 900, 5000])
    def test_the_store_copies_between_its_buckets(
        self,
        store: BlobStore,
        bucket: ObjectStore,
        server: LoopbackServer,
        monkeypatch: pytest.MonkeyPatch,
        size: int,
    ) -> None:
        """Nothing of the content passes through here, and each part of a large object is a request of its own."""
        monkeypatch.setattr(blobs_bucket, "COPY_BYTES", 1000)
        for module in (s3, azure):
            monkeypatch.setattr(module, "COPY_BYTES", 1000)
        store.put("x", [bytes(range(200)) * (size // 200)])
        key, other = "jobs/a b/x", bucket.add("near")
        source, target = (place_of(self.location.replace("bucket", name)) for name in ("bucket", "near"))
        assert source is not None
        assert target is not None
        assert isinstance(target.bucket, CopyingBucket)
        server.requests.clear()
        target.bucket.copy(key, source.bucket, len(bucket.objects[key].content))
        assert other.objects[key].content == bucket.objects[key].content
        assert not [one for one in server.requests if one.method == "GET" and one.path.endswith("/x")]
        assert max(len(one.body) for one in server.requests if not one.body.startswith(b"<")) == 0
        del bucket.objects[key]
        with pytest.raises(NoSuchObject):
            target.bucket.copy(key, source.bucket, size)

    def test_a_store_that_is_not_there(self, store: BlobStore, bucket: ObjectStore) -> None:
        bucket.bucket = "another"
        with pytest.raises(StoreRefused, match=r"NoSuchBucket: said the store$"):
            store.put("x", [b"."])

    def test_a_stranger_is_refused(self, store: BlobStore, bucket: ObjectStore) -> None:
        bucket.check = bearer("another")
        with pytest.raises(StoreRefused, match="identity, or the launcher's, may not do this"):
            store.put("x", [b"."])

    @pytest.mark.usefixtures("server")
    def test_of_two_writers_one_is_refused(self) -> None:
        ours, theirs = (shared_object(f"{self.location.rstrip('/')}/claim") for _ in range(2))
        assert ours.read() is None
        first = ours.write(b"ours", None)
        with pytest.raises(ObjectChanged):
            theirs.write(b"theirs", None)
        assert theirs.read() == Content(b"ours", first)
        second = theirs.write(b"theirs", first)
        with pytest.raises(ObjectChanged):
            ours.write(b"ours again", first)
        assert ours.read() == Content(b"theirs", second)


class TestS3(ObjectSuite):
    location = "s3://bucket/jobs/a b/"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
        monkeypatch.setenv("AWS_REGION", REGION)
        return S3Dialect("bucket", lambda _: None)

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)

    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
        kept = self.served(monkeypatch)
        with serving(kept) as running:
            self.point(running.url, monkeypatch)
            kept.check = aws_signed(running.url, KEY, SECRET, TOKEN, REGION)
            yield running

    def test_parts_that_a_machine_left_behind_are_removed_after_a_day(
        self, store: BlobStore, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The machine was killed, so it could not remove them itself. Uploads that go on, and those elsewhere, stay."""
        monkeypatch.setattr(objects, "PART_BYTES", 1000)
        now = datetime.now(UTC)
        left = {"jobs/a b/old/1": 25, "jobs/a b/recent/2": 23, "jobs/other/3": 99}
        for number, hours in left.items():
            bucket.parts[number], bucket.begun[number] = {"1": b"left"}, now - timedelta(hours=hours)
        store.put("x", [bytes(3000)])
        assert set(bucket.parts) == {"jobs/a b/recent/2", "jobs/other/3"}

    def test_an_identity_that_may_not_list_uploads_may_write(
        self, store: BlobStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "PART_BYTES", 1000)
        server.faults.append(Fault("/bucket/", Reply(403)))
        store.put("x", [bytes(3000)])
        assert content(store, "x") == bytes(3000)

    def test_parts_of_a_failed_upload_are_removed(
        self, store: BlobStore, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "PART_BYTES", 1000)

        def pieces() -> Iterator[bytes]:
            yield bytes(3000)
            assert bucket.parts
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - any
            store.put("x", pieces())
        assert bucket.parts == {}

    def test_a_wrong_key_does_not_pass(self, store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(StoreRefused, match="SignatureDoesNotMatch"):
            store.put("x", [b"."])


class TestGoogle(ObjectSuite):
    location = "gs://bucket/jobs/a b"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
        return GoogleDialect("bucket", bearer(TOKEN))

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", f"{url}/storage/v1/")


class TestAzure(ObjectSuite):
    location = "az://bucket@account/jobs/a b/"

    def served(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setattr(azure.MACHINE, "token", lambda: (TOKEN, 3600.0))
        return AzureDialect("bucket", bearer(TOKEN, x_ms_version="2023-11-03"))

    def point(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", url)

    def test_the_account_must_be_named(self) -> None:
        with pytest.raises(StoreRefused, match="az://bucket@ACCOUNT"):
            store_at("az://bucket/x")


@pytest.mark.parametrize("status", [200, 301, 403])
def test_requests_are_signed_for_the_region_of_the_bucket(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Head)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        monkeypatch.setattr(aws, "S3", f"http://127.0.0.1:{server.server_address[1]}")
        place = place_of("s3://bucket/x")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert place is not None
    assert isinstance(place.bucket, S3Bucket)
    assert place.bucket.url == "https://bucket.s3.ap-south-1.amazonaws.com"
    # Where nothing answers, the machine's own region is the best guess.
    monkeypatch.setattr(aws, "S3", "http://127.0.0.1:1")
    elsewhere = place_of("s3://my.bucket/x")
    assert elsewhere is not None
    assert isinstance(elsewhere.bucket, S3Bucket)
    assert elsewhere.bucket.url == "https://s3.eu-west-1.amazonaws.com/my.bucket"


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(store_at(str(tmp_path)), FileBlobStore)


def test_a_shared_object_is_in_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="not in an object store"):
        shared_object(str(tmp_path / "claim"))


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(StoreRefused, match="ftp://x: not a path"):
        store_at("ftp://x")
