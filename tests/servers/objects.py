"""Object stores on loopback: S3's dialect, which Google's XML interface shares, and Azure's.

A request that is not signed, whose checksum is wrong or which names an unknown upload is refused,
as the clouds do. Signatures of AWS are checked by botocore, so that the author of a client does not
decide what is right.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers.loopback import Reply, Request

PAGE = 3
"""Keys in one page of a list, so that every test that lists a few pages."""

CHANGED = "Thu, 26 Nov 2026 07:00:00 GMT"
"""When each object was changed last: obstore wants to know, and spotctl does not."""

Check = Callable[[Request], Reply | None]


@dataclass
class Stored:
    """An object; its tag changes with its content, its generation with every write."""

    content: bytes
    generation: int = 0

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


@dataclass
class ObjectStore:
    """What both dialects share. `check` returns a refusal of a caller that did not prove who it
    is."""

    bucket: str
    check: Check
    objects: dict[str, Stored] = field(default_factory=dict)
    parts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    begun: dict[str, datetime] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)
    others: dict[str, ObjectStore] = field(default_factory=dict)

    def answer(self, request: Request) -> Reply:
        refused = self.check(request) or self._damaged(request)
        if refused is not None:
            return refused
        bucket, _, key = request.path.removeprefix("/").partition("/")
        if bucket in self.others:
            return self.others[bucket].answer(request)
        if bucket != self.bucket:
            return error(404, "NoSuchBucket")
        return self.of_bucket(request) if not key else self.of_object(request, _unquoted(key))

    def add(self, name: str) -> ObjectStore:
        """A second bucket of the same store, which each of the two knows."""
        other = type(self)(name, self.check, others={self.bucket: self})
        self.others[name] = other
        return other

    def copied(self, place: str, span: str = "") -> bytes | None:
        """The content of an object that a copy names with its bucket, or a range of it; None if
        there is none.
        """
        bucket, _, key = _unquoted(place).lstrip("/").partition("/")
        store = self if bucket == self.bucket else self.others.get(bucket)
        if store is None or key not in store.objects:
            return None
        first, _, last = span.removeprefix("bytes=").partition("-")
        content = store.objects[key].content
        return content[int(first) : int(last) + 1 if last else None] if span else content

    def _damaged(self, request: Request) -> Reply | None:
        wanted = request.headers.get("content-md5")
        actual = base64.b64encode(
            hashlib.md5(request.body, usedforsecurity=False).digest()
        ).decode()
        if wanted is not None and wanted != actual:
            return error(400, "BadDigest")
        return None

    def of_bucket(self, request: Request) -> Reply:
        raise NotImplementedError

    def of_object(self, request: Request, key: str) -> Reply:
        raise NotImplementedError

    def read(self, request: Request, key: str) -> Reply:
        found = self.objects.get(key)
        if found is None:
            return error(404, "NoSuchKey", "BlobNotFound")
        first = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if request.headers.get("if-match", found.tag) != found.tag:
            return error(412, "PreconditionFailed")
        headers = {**self.versions(found), "Last-Modified": CHANGED}
        if first:
            headers["Content-Range"] = (
                f"bytes {first}-{len(found.content) - 1}/{len(found.content)}"
            )
        return Reply(206 if first else 200, found.content[first:], headers)

    def versions(self, stored: Stored) -> dict[str, str]:
        """The headers by which a later write names what it has read."""
        return {"ETag": stored.tag}

    def write(self, request: Request, key: str, status: int) -> Reply:
        """A whole object in one request, which may name the version that it replaces."""
        if not self.is_expected(request, self.objects.get(key)):
            return self.changed(request)
        self.objects[key] = Stored(request.body, next(self.numbers) + 1)
        return Reply(status, b"", self.versions(self.objects[key]))

    def is_expected(self, request: Request, found: Stored | None) -> bool:
        if request.headers.get("if-none-match") == "*":
            return found is None
        wanted = request.headers.get("if-match")
        return wanted is None or (found is not None and found.tag == wanted)

    def changed(self, request: Request) -> Reply:  # noqa: ARG002  # Azure's answer depends on it
        return error(412, "PreconditionFailed")

    def page(self, prefix: str, after: str) -> tuple[list[str], str]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return keys[:PAGE], keys[PAGE - 1] if len(keys) > PAGE else ""


class S3Dialect(ObjectStore):
    """Amazon's, and Google's XML interface."""

    def of_bucket(self, request: Request) -> Reply:
        if "uploads" in request.query:
            return self._uploads(_one(request, "prefix"))
        if request.query.get("list-type") != ["2"]:
            return error(400, "InvalidArgument")
        keys, more = self.page(_one(request, "prefix"), _one(request, "continuation-token"))
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-26T07:00:00Z</LastModified>"
            f"<ETag>{escape(self.objects[key].tag)}</ETag><Size>{len(self.objects[key].content)}</Size></Contents>"
            for key in keys
        )
        truncated = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        return xml(
            f"<ListBucketResult "
            f"xmlns='http://s3'><Name>b</Name>{truncated}{token}{contents}</ListBucketResult>"
        )

    def _uploads(self, prefix: str) -> Reply:
        found = ((number.rpartition("/")[0], number, self.begun[number]) for number in self.parts)
        uploads = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{escape(number)}</UploadId>"
            f"<Initiated>{begun:%Y-%m-%dT%H:%M:%S.000Z}</Initiated></Upload>"
            for key, number, begun in found
            if key.startswith(prefix)
        )
        return xml(
            f"<ListMultipartUploadsResult xmlns='http://s3'>{uploads}</ListMultipartUploadsResult>"
        )

    def of_object(self, request: Request, key: str) -> Reply:
        if "uploads" in request.query or "uploadId" in request.query:
            return self._upload(request, key)
        if request.method == "PUT" and "x-amz-copy-source" in request.headers:
            content = self._copied(request)
            if content is None:
                return error(404, "NoSuchKey")
            self.objects[key] = Stored(content, next(self.numbers) + 1)
            return xml(f"<CopyObjectResult><ETag>{self.objects[key].tag}</ETag></CopyObjectResult>")
        if request.method == "PUT":
            return self.write(request, key, 200)
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return Reply(204)
        return self.read(request, key)

    def _copied(self, request: Request) -> bytes | None:
        return self.copied(
            request.headers["x-amz-copy-source"], request.headers.get("x-amz-copy-source-range", "")
        )

    def _upload(self, request: Request, key: str) -> Reply:
        if "uploads" in request.query:
            number = f"{key}/{next(self.numbers)}"
            self.parts[number], self.begun[number] = {}, datetime.now(UTC)
            return xml(
                f"<InitiateMultipartUploadResult><UploadId>{escape(number)}</UploadId></InitiateMultipartUploadResult>"
            )
        number = _one(request, "uploadId")
        if number not in self.parts:
            return error(404, "NoSuchUpload")
        if request.method == "PUT":
            return self._part(request, self.parts[number])
        parts = self.parts.pop(number)
        if request.method == "POST":
            asked = [
                (one.findtext("{*}PartNumber", ""), one.findtext("{*}ETag", ""))
                for one in ElementTree.fromstring(request.body).iterfind("{*}Part")
            ]
            if any(Stored(parts[part]).tag != tag for part, tag in asked):
                return error(400, "InvalidPart")
            self.objects[key] = Stored(
                b"".join(parts[part] for part, _ in asked), next(self.numbers) + 1
            )
            tag = self.objects[key].tag
            return xml(
                f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>"
            )
        return Reply(204)

    def _part(self, request: Request, parts: dict[str, bytes]) -> Reply:
        copies = "x-amz-copy-source" in request.headers
        content = self._copied(request) if copies else request.body
        if content is None:
            return error(404, "NoSuchKey")
        part = Stored(content)
        parts[_one(request, "partNumber")] = content
        return (
            xml(f"<R><ETag>{part.tag}</ETag></R>")
            if copies
            else Reply(200, b"", {"ETag": part.tag})
        )


_REWRITE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)")
REWRITTEN_AT_ONCE = 4000
"""Bytes above which a copy takes a second request, as for large objects between regions."""


class GoogleDialect(S3Dialect):
    """Cloud Storage compares generations, and ignores the conditions of S3. Copies are made by its
    JSON interface.
    """

    def answer(self, request: Request) -> Reply:
        if not (match := _REWRITE.fullmatch(request.path)):
            return super().answer(request)
        if (refused := self.check(request)) is not None:
            return refused
        origin, key, target, name = (_unquoted(part) for part in match.groups())
        store, content = (
            self if target == self.bucket else self.others.get(target),
            self.copied(f"{origin}/{key}"),
        )
        if request.method != "POST" or store is None or content is None:
            return Reply.of_json({"error": {"code": 404, "message": "Not Found"}}, 404)
        if len(content) > REWRITTEN_AT_ONCE and not _one(request, "rewriteToken"):
            return Reply.of_json({"done": False, "rewriteToken": "go on"})
        store.objects[name] = Stored(content, next(self.numbers) + 1)
        return Reply.of_json({"done": True})

    def versions(self, stored: Stored) -> dict[str, str]:
        return {"ETag": stored.tag, "x-goog-generation": str(stored.generation)}

    def is_expected(self, request: Request, found: Stored | None) -> bool:
        wanted = request.headers.get("x-goog-if-generation-match")
        return wanted is None or wanted == str(0 if found is None else found.generation)


class AzureDialect(ObjectStore):
    """Blob Storage."""

    def changed(self, request: Request) -> Reply:
        creates = "if-none-match" in request.headers
        return error(409, "BlobAlreadyExists") if creates else error(412, "ConditionNotMet")

    def of_bucket(self, request: Request) -> Reply:
        if request.query.get("comp") == ["batch"]:
            return self._batch(request)
        if (request.query.get("restype"), request.query.get("comp")) != (["container"], ["list"]):
            return error(400, "InvalidQueryParameterValue")
        keys, more = self.page(_one(request, "prefix"), _one(request, "marker"))
        blobs = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{CHANGED}</Last-Modified>"
            f"<Content-Length>{len(self.objects[key].content)}</Content-Length><Content-Type>a/b</Content-Type>"
            f"<Etag>{escape(self.objects[key].tag)}</Etag></Properties></Blob>"
            for key in keys
        )
        marker = f"<NextMarker>{escape(more)}</NextMarker>" if more else "<NextMarker />"
        return xml(f"<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>")

    def of_object(self, request: Request, key: str) -> Reply:
        if request.method != "PUT":
            return self._read_or_remove(request, key)
        if "x-ms-copy-source" in request.headers:
            return self._copy(request, key)
        operation = _one(request, "comp")
        if operation == "blocklist":
            return self._commit(request, key)
        if operation == "block":
            self.parts.setdefault(key, {})[_one(request, "blockid")] = request.body
            return Reply(201)
        if request.headers.get("x-ms-blob-type") == "BlockBlob":
            return self.write(request, key, 201)
        return error(400, "MissingRequiredHeader")

    def _commit(self, request: Request, key: str) -> Reply:
        """The blob becomes these blocks, whichever list they are looked up in."""
        blocks = [one.text or "" for one in ElementTree.fromstring(request.body)]
        if any(block not in self.parts.get(key, {}) for block in blocks):
            return error(400, "InvalidBlockList")
        parts = self.parts.pop(key)
        self.objects[key] = Stored(b"".join(parts[block] for block in blocks))
        return Reply(201, b"", self.versions(self.objects[key]))

    def _batch(self, request: Request) -> Reply:
        """Removals in one request, as parts of MIME."""
        answers = []
        for number, path in enumerate(re.findall(rb"DELETE (\S+) HTTP/1.1", request.body)):
            key = _unquoted(urlsplit(path.decode()).path).partition(f"/{self.bucket}/")[2]
            status = (
                "202 Accepted"
                if self.objects.pop(key, None)
                else "404 The specified blob does not exist."
            )
            code = "" if status.startswith("202") else "x-ms-error-code: BlobNotFound\r\n"
            answers.append(
                "--b\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n{code}x-ms-version: "
                "2023-11-03\r\n\r\n"
            )
        body = "".join([*answers, "--b--"]).encode()
        return Reply(202, body, {"Content-Type": "multipart/mixed; boundary=b"})

    def _read_or_remove(self, request: Request, key: str) -> Reply:
        if request.method in ("GET", "HEAD"):
            return self.read(request, key)
        return Reply(202) if self.objects.pop(key, None) else error(404, "BlobNotFound")

    def _copy(self, request: Request, key: str) -> Reply:
        headers = dict(request.headers)
        if headers.get("x-ms-copy-source-authorization") != headers["authorization"]:
            return error(403, "CannotVerifyCopySource")
        content = self.copied(
            urlsplit(headers.pop("x-ms-copy-source")).path, headers.get("x-ms-source-range", "")
        )
        if content is None:
            return error(404, "CannotVerifyCopySource")
        return self.of_object(replace(request, body=content, headers=headers), key)


def bearer(token: str, **headers: str) -> Check:
    """Refuses requests without this token, or without these headers (with _ for -)."""

    def check(request: Request) -> Reply | None:
        if request.headers.get("authorization") != f"Bearer {token}":
            return error(401, "NoAuthenticationInformation")
        missing = [
            name for name in headers if request.headers.get(name.replace("_", "-")) != headers[name]
        ]
        return error(400, "MissingRequiredHeader") if missing else None

    return check


def aws_signed(url: str, key: str, secret: str, token: str, region: str) -> Check:
    """Refuses requests whose signature is not the one that botocore computes."""

    def check(request: Request) -> Reply | None:
        query = "&".join(
            f"{name}={_quoted(values[0])}" for name, values in sorted(request.query.items())
        )
        signed = re.search("SignedHeaders=([^,]+)", request.headers.get("authorization", ""))
        named = signed[1].split(";") if signed else []
        own = (name for name in named if name not in ("host", "x-amz-date"))
        headers = {name: request.headers[name] for name in own}
        if headers.get("x-amz-content-sha256") != hashlib.sha256(request.body).hexdigest():
            return error(400, "XAmzContentSHA256Mismatch")
        ours = AWSRequest(
            request.method, f"{url}{request.path}{'?' * bool(query)}{query}", headers, request.body
        )
        ours.context["timestamp"] = request.headers["x-amz-date"]
        ours.headers["X-Amz-Date"] = request.headers["x-amz-date"]
        auth = S3SigV4Auth(Credentials(key, secret, token), "s3", region)
        text = auth.string_to_sign(ours, auth.canonical_request(ours))
        expected = auth.signature(text, ours)
        proof = request.headers.get("authorization", "").rpartition("Signature=")[2]
        return (
            None
            if proof == expected
            else error(403, "SignatureDoesNotMatch", "SignatureDoesNotMatch")
        )

    return check


def error(status: int, code: str, azure: str = "") -> Reply:
    reply = xml(f"<Error><Code>{code}</Code><Message>said the store\n</Message></Error>", status)
    return Reply(status, reply.body, {"x-ms-error-code": azure or code})


def xml(text: str, status: int = 200) -> Reply:
    return Reply(
        status,
        f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(),
        {"Content-Type": "application/xml"},
    )


def _one(request: Request, name: str) -> str:
    return request.query.get(name, [""])[0]


def _unquoted(key: str) -> str:
    from urllib.parse import unquote

    return unquote(key)


def _quoted(value: str) -> str:
    from urllib.parse import quote

    return quote(value, safe="~")
