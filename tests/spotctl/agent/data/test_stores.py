"""Every object store passes the suite of blob stores, and answers failures with one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agileml.runtime.blob_store import BlobStore, UnreadableBlob, file_pieces
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data import stores
from spotctl.agent.data.locations import MACHINE, place_of, shared_object, store_at
from spotctl.agent.data.stores import (
    Content,
    NoSuchObject,
    ObjectChanged,
    StoreRefused,
    StoreUnavailable,
)
from spotctl.clouds.wiring import buckets_of
from tests.agileml.runtime.blob_store_suite import BlobStoreSuite, Damage, content
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request, serving
from tests.servers.objects import (
    AzureDialect,
    ObjectStore,
    S3Dialect,
    Stored,
    aws_signed,
    bearer,
)

pytestmark = pytest.mark.usefixtures("quick")

KEY, SECRET, TOKEN, REGION = "AKIATEST", "secret+/", "session-token", "eu-west-1"


class ObjectSuite(BlobStoreSuite):
    """The suite, with a bucket of one dialect on loopback, through a location as a job file names
    it.
    """

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
            key = f"jobs/a-b/{name}"
            bucket.objects[key] = Stored(changed(bucket.objects[key].content))

        return change

    def test_keys_are_below_the_location(self, store: BlobStore, bucket: ObjectStore) -> None:
        store.put("x/y", [b"."])
        bucket.objects["jobs/other/z"] = Stored(b"")
        bucket.objects["jobs/a-b/no name"] = Stored(b"")
        assert set(bucket.objects) == {"jobs/a-b/x/y", "jobs/other/z", "jobs/a-b/no name"}
        assert store.list() == ["x/y"]

    def test_a_large_blob_goes_in_parts(
        self,
        store: BlobStore,
        bucket: ObjectStore,
        server: LoopbackServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(stores, "PART_BYTES", 1000)
        store.put("x", [bytes(700), b"1" * 2300, b"2" * 40])
        assert content(store, "x") == bytes(700) + b"1" * 2300 + b"2" * 40
        sizes = [
            len(one.body) for one in server.requests if one.method == "PUT" and len(one.body) >= 72
        ]
        assert [size for size in sizes if size == 1000] == [1000] * 3
        assert set(bucket.objects) == {"jobs/a-b/x"}

    def test_a_large_write_that_fails_leaves_the_earlier_blob(
        self, store: BlobStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stores, "PART_BYTES", 1000)
        store.put("x", [b"kept"])

        def pieces() -> Iterator[bytes]:
            yield bytes(3000)
            raise OSError("no space left")

        with pytest.raises(OSError, match="no space left"):
            store.put("x", pieces())
        assert content(store, "x") == b"kept"
        server.faults.append(Fault("x", Reply(403), skip=2, times=-1))
        with pytest.raises(StoreRefused, match="may not do this"):
            store.put("x", [bytes(3000)])
        server.faults.clear()
        assert content(store, "x") == b"kept"

    def test_passing_failures_are_repeated(self, store: BlobStore, server: LoopbackServer) -> None:
        server.faults.append(Fault("x", Reply(503), times=3))
        store.put("x", [b"content"])
        server.faults.append(Fault("x", Reply(500), times=2))
        assert content(store, "x") == b"content"

    def test_a_failure_that_lasts_is_one_line(
        self, store: BlobStore, server: LoopbackServer
    ) -> None:
        server.faults.append(
            Fault("/", Reply(503, b"<Error><Code>SlowDown</Code></Error>"), times=-1)
        )
        with pytest.raises(StoreRefused, match=r"/x: SlowDown$"):
            store.put("x", [b"."])
        with pytest.raises(StoreRefused, match="SlowDown"):
            store.list()
        with pytest.raises(UnreadableBlob, match="SlowDown"):
            content(store, "x")

    def test_a_broken_download_goes_on_where_it_was(
        self, store: BlobStore, server: LoopbackServer
    ) -> None:
        blob = bytes(range(256)) * 10_000
        store.put("x", [blob])
        server.faults.append(Fault("x", cut=1_300_000))
        if isinstance(server.api, AzureDialect):
            server.faults.append(Fault("x", cut=100_000))
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
        """Nothing of the content passes through here, and each part of a large object is a request
        of its own.
        """
        for module in ("aws", "azure"):
            monkeypatch.setattr(f"spotctl.clouds.{module}.buckets.COPY_BYTES", 1000)
        store.put("x", [bytes(range(200)) * (size // 200)])
        scheme, _, rest = self.location.partition("://")
        key, other, name = "jobs/a-b/x", bucket.add("near"), rest.partition("/")[0]
        cloud = clouds_by_scheme()[scheme]
        copy = partial(
            buckets_of(cloud).copy, key, name, name.replace("bucket", "near"), MACHINE(cloud)
        )
        server.requests.clear()
        copy()
        assert other.objects[key].content == bucket.objects[key].content
        assert not [
            one for one in server.requests if one.method == "GET" and one.path.endswith("x")
        ]
        assert max(len(one.body) for one in server.requests if not one.body.startswith(b"<")) == 0
        del bucket.objects[key]
        with pytest.raises(NoSuchObject):
            copy()

    def test_markers_of_folders_are_listed_as_such(self, bucket: ObjectStore) -> None:
        bucket.objects |= {
            f"data/{name}": Stored(b"1" * (name == "b/c")) for name in ("", "b/", "b/c", "empty")
        }
        place = place_of(self.location.replace("jobs/a-b", "data").rstrip("/"))
        assert place is not None
        assert set(place.bucket.list(place.prefix)) - {"data/"} == {
            "data/b/",
            "data/b/c",
            "data/empty",
        }

    def test_a_name_that_cannot_be_a_files_is_refused(self, bucket: ObjectStore) -> None:
        place = place_of(self.location)
        assert place is not None
        for name in ("a/../b", "a/./b", "a//../b", "..//a", "a/", "a//"):
            for use in (
                place.bucket.delete,
                lambda key: place.bucket.write(key, [b"."]),
                place.bucket.exists,
            ):
                with pytest.raises(
                    StoreRefused, match=r"^\w+://[\w@]+/.*: a name that cannot be a file's"
                ):
                    use(name)
        bucket.objects["data/a/../b"] = Stored(b"")
        assert place.bucket.list("data/") == ["data/a/../b"]
        with pytest.raises(StoreRefused, match=r"data/a/\.\./b: a name that cannot be a file's"):
            next(place.bucket.get("data/a/../b"))
        assert set(bucket.objects) == {"data/a/../b"}

    def test_keys_with_empty_parts_are_objects_like_others(
        self, bucket: ObjectStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """obstore refuses to name them, and to list anything next to them."""
        monkeypatch.setattr(stores, "PART_BYTES", 1000)
        place = place_of(self.location)
        assert place is not None
        contents = {
            "a//b": 10,
            "/a": 20,
            "a///b//c d+ä~%2F": 5000,
            "a/c": 30,
            "//&=": 40,
            "b//x": 0,
        }
        for key, size in contents.items():
            place.bucket.write(key, [bytes(size // 2), bytes(size - size // 2)])
        assert {key: len(stored.content) for key, stored in bucket.objects.items()} == contents
        assert {key: len(b"".join(place.bucket.get(key))) for key in contents} == contents
        for prefix in ("", "a/", "a//", "a///b//", "/", "b/", "b//x"):
            server.faults.append(Fault("bucket", Reply(503), times=2))
            assert set(place.bucket.list(prefix)) == {
                key for key in contents if key.startswith(prefix)
            }
        for key in contents:
            place.bucket.delete(key)
            assert not place.bucket.exists(key)
        server.faults.append(Fault("bucket", Reply(403), times=-1))
        with pytest.raises(StoreRefused, match="may not do this"):
            place.bucket.list("a//")

    @pytest.mark.parametrize("prefix", ["a b/", "a*b/", "~/"])
    def test_prefixes_that_obstore_misquotes_are_listed(
        self, bucket: ObjectStore, prefix: str
    ) -> None:
        place = place_of(self.location)
        assert place is not None
        names = {f"{prefix}{number}" for number in range(5)}
        for name in (*names, "other"):
            place.bucket.put(name, b".")
        assert set(bucket.objects) == {*names, "other"}
        assert set(place.bucket.list(prefix)) == names

    def test_markers_of_folders_keep_their_slash(self, bucket: ObjectStore) -> None:
        bucket.objects |= {"x/a/": Stored(b""), "x/a/b": Stored(b"."), "x/empty": Stored(b"")}
        place = place_of(self.location)
        assert place is not None
        assert place.bucket.list("x/") == ["x/a/", "x/a/b", "x/empty"]

    def test_an_object_with_an_empty_part_in_its_name_has_two_writers(
        self, bucket: ObjectStore
    ) -> None:
        ours, theirs = (shared_object(f"{self.location.rstrip('/')}//runs/claim") for _ in range(2))
        first = ours.write(b"ours", None)
        with pytest.raises(ObjectChanged):
            theirs.write(b"theirs", None)
        assert ours.read() == Content(b"ours", first)
        assert set(bucket.objects) == {"jobs/a-b//runs/claim"}

    def test_what_the_last_version_wrote_is_read(
        self, store: BlobStore, bucket: ObjectStore
    ) -> None:
        """A blob is its content and the SHA-256 of it; a name is a key below the location."""
        written = b"model" + bytes.fromhex(
            "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4"
        )
        bucket.objects["jobs/a-b/models/run.1/node-0"] = Stored(written)
        assert store.list("models/run.1/") == ["models/run.1/node-0"]
        assert content(store, "models/run.1/node-0") == b"model"

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

    @pytest.mark.parametrize("answer", ["500", "none"])
    @pytest.mark.parametrize("version", [None, "current"])
    def test_a_write_that_was_stored_and_then_not_confirmed_is_ours(
        self, bucket: ObjectStore, server: LoopbackServer, version: str | None, answer: str
    ) -> None:
        claim = shared_object(f"{self.location.rstrip('/')}/claim")
        known = version and claim.write(b"before", None)
        if answer == "none":
            server.faults.append(Fault("claim", lost=True))
        else:
            _answer_writes(bucket, Reply(500), stores_them=True)
        found = claim.write(b"ours", known)
        assert claim.read() == Content(b"ours", found)

    def test_a_write_that_failed_is_not_ours(self, bucket: ObjectStore) -> None:
        claim = shared_object(f"{self.location.rstrip('/')}/claim")
        _answer_writes(bucket, Reply(500), stores_them=False)
        with pytest.raises(StoreUnavailable):
            claim.write(b"ours", None)
        assert claim.read() is None
        first = claim.write(b"ours", None)
        _answer_writes(bucket, Reply(500), stores_them=False)
        bucket.objects["jobs/a-b/claim"] = Stored(b"theirs", 99)
        with pytest.raises(ObjectChanged):
            claim.write(b"ours again", first)
        assert bucket.objects["jobs/a-b/claim"].content == b"theirs"


class TestS3(ObjectSuite):
    location = "s3://bucket/jobs/a-b/"

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

    def test_parts_of_a_failed_upload_are_removed(
        self, store: BlobStore, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stores, "PART_BYTES", 1000)

        def pieces() -> Iterator[bytes]:
            yield bytes(3000)
            assert bucket.parts
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - any
            store.put("x", pieces())
        assert bucket.parts == {}

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (400, "RequestTimeout"),
            (409, "OperationAborted"),
            (503, "SlowDown"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
        ],
    )
    def test_answers_that_pass_are_repeated(
        self, store: BlobStore, server: LoopbackServer, status: int, code: str
    ) -> None:
        passing = Reply(status, f"<Error><Code>{code}</Code></Error>".encode())
        server.faults.append(Fault("bucket", passing, times=2))
        store.put("x", [b"content"])
        server.faults.append(Fault("bucket", passing, times=2))
        assert store.list() == ["x"]
        server.faults.append(Fault("bucket", passing, times=2))
        assert content(store, "x") == b"content"
        server.faults.append(Fault("bucket", passing, times=2))
        store.delete("x")
        assert store.list() == []
        server.faults.append(Fault("bucket", passing, times=-1))
        with pytest.raises(StoreUnavailable, match=code):
            store.put("x", [b"content"])

    @pytest.mark.parametrize(
        ("status", "code"), [(400, "RequestTimeout"), (409, "OperationAborted")]
    )
    @pytest.mark.parametrize("request_number", [0, 1, 2, 4])
    def test_a_large_file_is_sent_again_when_a_part_met_an_answer_that_passes(
        self,
        bucket: ObjectStore,
        server: LoopbackServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        status: int,
        code: str,
        request_number: int,
    ) -> None:
        """The first request of an upload begins it, the next three send parts, and the last one
        completes it.
        """
        monkeypatch.setattr(stores, "PART_BYTES", 1000)
        (tmp_path / "model").write_bytes(bytes(range(256)) * 10)
        place = place_of(self.location)
        assert place is not None
        passing = Reply(status, f"<Error><Code>{code}</Code></Error>".encode())
        server.faults.append(Fault("model", passing, skip=request_number))
        place.bucket.write("model", partial(file_pieces, tmp_path / "model"))
        assert bucket.objects["model"].content == bytes(range(256)) * 10
        assert bucket.parts == {}
        # Pieces that can be read only once cannot be sent again, so the writer gets an error that
        # may pass.
        server.faults.append(Fault("model", passing, skip=request_number))
        with pytest.raises(StoreUnavailable, match=code):
            place.bucket.write("model", file_pieces(tmp_path / "model"))
        server.faults.append(Fault("model", passing, times=-1))
        with pytest.raises(StoreUnavailable, match=code):
            place.bucket.write("model", partial(file_pieces, tmp_path / "model"))

    @pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "RequestExpired"])
    def test_a_wrong_clock_is_named(
        self, store: BlobStore, server: LoopbackServer, code: str
    ) -> None:
        server.faults.append(Fault("x", Reply(403, f"<Error><Code>{code}</Code></Error>".encode())))
        with pytest.raises(
            StoreRefused, match="the clock of this computer is off by more than 15 minutes: set it"
        ):
            store.put("x", [b"."])

    def test_a_wrong_key_does_not_pass(
        self, store: BlobStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(StoreRefused, match="SignatureDoesNotMatch"):
            store.put("x", [b"."])


def _answer_writes(bucket: ObjectStore, reply: Reply, *, stores_them: bool) -> None:
    """Answers the next write of an object with a failure, after it was stored or before."""
    write = bucket.write

    def once(request: Request, key: str, status: int) -> Reply:
        bucket.write = write  # type: ignore[method-assign]
        if stores_them:
            write(request, key, status)
        return reply

    bucket.write = once  # type: ignore[method-assign]
