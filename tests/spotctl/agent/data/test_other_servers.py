"""Object stores of other authors: moto, which checks signatures and policies, and Azurite, if it is
installed.

No emulator of Cloud Storage answers what obstore asks (docs/decisions/0024-object-stores.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from boto3 import Session
from moto import settings
from moto.server import ThreadedMotoServer

from agileml.runtime.blob_store import UnreadableBlob
from spotctl.agent.data import stores
from spotctl.agent.data.locations import MACHINE, StoreIdentity, place_of, shared_object, store_at
from spotctl.agent.data.stores import Content, NoSuchObject, ObjectChanged, StoreRefused
from spotctl.clouds.wiring import buckets_of
from spotctl.run.stored_data.storing import drop_abandoned_parts
from tests.agileml.runtime.blob_store_suite import content
from tests.servers.azurite import LOCATION, AzuriteUser, azurite

_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}
_PARTS = [bytes([number]) * (1 << 20) for number in range(12)]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two buckets of moto, for a user whose keys are in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        root = Session()
        iam, plain = root.client("iam"), root.client("s3")
        iam.create_user(UserName="machine")
        key = iam.create_access_key(UserName="machine")["AccessKey"]
        iam.put_user_policy(UserName="machine", PolicyName="p", PolicyDocument=json.dumps(_POLICY))
        for bucket in ("bucket", "near"):
            plain.create_bucket(Bucket=bucket)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        yield
    finally:
        server.stop()


def check_store(location: str, who: StoreIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs, large ones in parts, lists of more than a page, removal, and an object with two
    writers.
    """
    monkeypatch.setattr(stores, "PART_BYTES", 5 << 20)
    store = store_at(location, who)
    store.put("small", [b"content"])
    store.put("large", _PARTS)
    assert content(store, "small") == b"content"
    assert content(store, "large") == b"".join(_PARTS)
    place = place_of(location, who)
    assert place is not None
    odd = "a b/ä+%20&=~'(1).bin"
    place.bucket.put(f"{place.prefix}{odd}", b"odd")
    assert b"".join(place.bucket.get(f"{place.prefix}{odd}")) == b"odd"
    assert set(place.bucket.list(place.prefix)) == {
        f"{place.prefix}{name}" for name in ("small", "large", odd)
    }
    for key in (f"{place.prefix}a//b", f"{place.prefix}a/marked"):
        place.bucket.put(key, b"")
    assert place.bucket.list(f"{place.prefix}a//") == [f"{place.prefix}a//b"]
    assert place.bucket.list(f"{place.prefix}a/") == [
        f"{place.prefix}a//b",
        f"{place.prefix}a/marked",
    ]
    for key in (f"{place.prefix}a//b", f"{place.prefix}a/marked"):
        place.bucket.delete(key)
    assert place.bucket.list(f"{place.prefix}a/") == []
    with pytest.raises(UnreadableBlob, match="does not exist"):
        content(store, "nothing")
    store.delete("small")
    store.delete("small")
    assert store.list() == ["large"]
    ours, theirs = (shared_object(f"{location}/claim", who) for _ in range(2))
    assert ours.read() is None
    first = ours.write(b"ours", None)
    with pytest.raises(ObjectChanged):
        theirs.write(b"theirs", None)
    second = theirs.write(b"theirs", first)
    with pytest.raises(ObjectChanged):
        ours.write(b"ours again", first)
    assert ours.read() == Content(b"theirs", second)


@pytest.mark.usefixtures("s3")
def test_s3_with_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    check_store("s3://bucket/jobs/j", MACHINE, monkeypatch)
    check_store("s3://bucket/jobs/a *~b", MACHINE, monkeypatch)
    # Copies between buckets, and what killed machines have left.
    copy = buckets_of("aws").copy
    copy("jobs/j/large", "bucket", "near", MACHINE("aws"))
    assert content(store_at("s3://near/jobs/j"), "large") == b"".join(_PARTS)
    with pytest.raises(NoSuchObject):
        copy("jobs/j/nothing", "bucket", "near", MACHINE("aws"))
    client = Session().client("s3")
    client.create_multipart_upload(Bucket="bucket", Key="jobs/j/left")
    drop_abandoned_parts("s3://bucket/jobs/j", MACHINE)
    # moto says of every upload that it began in 2010.
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreRefused, match="SignatureDoesNotMatch"):
        store_at("s3://bucket/jobs/j").put("x", [b"."])


def test_azurite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with azurite(tmp_path) as store:
        monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", store.account())
        with monkeypatch.context() as quick:
            quick.setattr(stores, "FIRST_PAUSE", 0.001)
            with pytest.raises(
                StoreRefused, match=r"no answer: HTTP error: .*: InvalidCertificate UnknownIssuer$"
            ):
                store_at(f"{LOCATION}/jobs/j", AzuriteUser()).put("x", [b"."])
        monkeypatch.setenv("SSL_CERT_FILE", str(store.certificate))
        check_store(f"{LOCATION}/jobs/j", AzuriteUser(), monkeypatch)
