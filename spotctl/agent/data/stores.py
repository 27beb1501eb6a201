"""Buckets of S3, Cloud Storage and Blob Storage, through obstore, behind the few operations that
spotctl needs.

obstore repeats what a store answers with 5xx, 408 or 429, and connections that fail. `Bucket` also
repeats S3's RequestTimeout and OperationAborted, which come as 400 and 409, and says in one line
why a store refuses something. obstore is imported when a bucket is first used: an agent that needs
no bucket runs without it.
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree

from agileml.runtime.blob_store import BlobBytes

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

PART_BYTES = 16 << 20
"""Bytes per part. The clouds allow at least 10,000 parts, so an object may have 160 GB."""

PARTS_AT_ONCE = 2
"""Parts of one object that are in memory and on their way."""

COPY_BYTES = 256 << 20
"""Bytes that a store copies with one request, which must be answered within the time of a call."""

ATTEMPTS = 6
FIRST_PAUSE = 0.5
CALL_SECONDS = 60
"""How long a request may be repeated."""

_CONNECT_SECONDS = 20

_SILENCE_SECONDS = 180
"""A request has failed after so long without a byte of the answer. A part may take that long on its
way to a store."""

SILENCE_SECONDS = ATTEMPTS * _SILENCE_SECONDS
"""How long a store that never answers is asked."""

_WHOLE_SECONDS = 3600
"""How long an answer may take with all that it brings; the rest is then asked for with another
request."""


_PIECE_BYTES = 1 << 16
_LISTED_AT_ONCE = 1000
_REPEATED = ("RequestTimeout", "OperationAborted")
_CLOCK_CODES = ("RequestTimeTooSkewed", "RequestExpired")
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_CHANGED = (
    "BlobAlreadyExists",
    "ConditionalRequestConflict",
    "ConditionNotMet",
    "PreconditionFailed",
)
_STATUS, _CODE = re.compile(r"status code: (\d{3})"), re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_NO_PATH = ("with invalid path: ", "Could not parse path: ")
_AROUND = re.compile(
    r"^Generic \w+ error: |Error performing (\w+ \S+ in [^-]+ - |(list|bulk delete) request: )"
)
_CAUSE = re.compile(
    r'(?:message|error): "([^"]+)"|(InvalidCertificate)\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)'
)

_MISQUOTED = frozenset(" *~")
"""Characters of a prefix that obstore sends in another form than it signs: S3 itself takes that,
moto does not."""

_NO_AUTHORITIES = (
    "this computer knows no authorities of certificates: install the package ca-certificates, or "
    "correct SSL_CERT_FILE"
)
_NO_NAME = (
    "a name that cannot be a file's, with . or .. between slashes, or a slash at its end: choose "
    "another"
)

T = TypeVar("T")


class StoreRefused(OSError):
    """The store refused a request, or did not answer; the message names the object and says why."""


class StoreUnavailable(StoreRefused):
    """The store failed, or did not answer, in a way that may pass."""


class _NotListed(StoreRefused):
    """A name has empty, `.` or `..` parts, so that obstore lists nothing."""


class NoSuchObject(StoreRefused):
    """There is no object of this name, or no such bucket."""


class ObjectChanged(StoreRefused):
    """A write on a condition was refused: another process has written the object."""


@dataclass(frozen=True, slots=True)
class Content:
    """An object's data, and the version by which a writer proves that it has read this data."""

    data: bytes
    version: str


def retries(count: int) -> RetryConfig:
    """How often obstore repeats a request, and for how long."""
    backoff = {
        "init_backoff": timedelta(seconds=FIRST_PAUSE),
        "max_backoff": timedelta(seconds=8),
        "base": 2,
    }
    return {
        "max_retries": count,
        "retry_timeout": timedelta(seconds=CALL_SECONDS),
        "backoff": backoff,  # type: ignore[typeddict-item]
    }


def client_options(url: str) -> ClientConfig:
    """obstore's options for a store at this address; empty for the cloud's own."""
    return {
        "allow_http": url.startswith("http://"),
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=_SILENCE_SECONDS),
        "timeout": timedelta(seconds=_WHOLE_SECONDS),
    }


class Bucket:
    """A bucket or container; messages use `name`, such as s3://bucket. Every call may raise
    StoreRefused.

    `connect` makes obstore's client for a number of retries. Keys with empty parts, which obstore
    cannot express, are named without all up to the last of these: the client's address, if it is
    given one, then ends with that part. `page` makes a request for the keys below a prefix, from a
    place in the list on that the page before has named. A version is a generation where the store
    counts these, and otherwise an entity tag.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[int, str | None], ObjectStore],
        page: Callable[[str, str], urllib.request.Request],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._connect, self._page, self._sleep = connect, page, sleep
        self._clients: dict[tuple[int, str | None], ObjectStore] = {}

    def put(self, key: str, content: bytes) -> None:
        """Writes a small object with one request."""
        import obstore

        client, path = self._at(key)
        self._do(key, obstore.put, client, path, content, use_multipart=False)

    def write(
        self, key: str, pieces: Iterable[BlobBytes] | Callable[[], Iterable[BlobBytes]]
    ) -> None:
        """Writes an object that appears only when it is whole: a small one at once, a large one in
        parts.

        What `pieces` raises passes through; the parts that were sent are then removed. After a
        transient answer that obstore takes as final, pieces that come from a function are sent
        again from the first.
        """
        import obstore

        client, path = self._at(key)
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            source, first = iter(pieces() if callable(pieces) else pieces), bytearray()
            for piece in source:
                first += piece
                if len(first) > PART_BYTES:
                    break
            else:
                self.put(key, bytes(first))
                return

            whole = chain([bytes(first)], source)
            try:
                obstore.put(
                    client, path, whole, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                )
            except _errors() as error:
                # What `pieces` raises may be of the same kind as what obstore raises.
                if isinstance(error, ValueError) or (
                    isinstance(error, OSError) and error.errno is not None
                ):
                    raise
                if not callable(pieces) or _code(error) not in _REPEATED or attempt == ATTEMPTS:
                    raise _refusal(self._what(key), error) from None
            else:
                return
            self._sleep(pause)
            pause *= 2

    def get(self, key: str) -> Iterator[memoryview]:
        """The content in pieces. NoSuchObject: there is no such object."""
        import obstore

        client, path = self._at(key)
        answer = self._do(key, obstore.get, client, path)
        done, failures, tag = 0, 0, answer.meta["e_tag"]
        while True:
            try:
                for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
                    yield memoryview(piece)
                    done, failures = done + len(piece), 0
            except _errors() as error:
                failures += 1
                if failures == ATTEMPTS or tag is None:
                    raise StoreUnavailable(
                        f"{self._what(key)}: the connection broke after {done} bytes: "
                        f"{_line(error)}"
                    ) from None
            else:
                return
            self._sleep(FIRST_PAUSE)
            rest = {"range": {"offset": done}, "if_match": tag}
            answer = self._do(key, obstore.get, client, path, options=rest)

    def list(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        import obstore

        # obstore would list what is below the prefix without its first slash.
        if prefix.startswith("/") or not _MISQUOTED.isdisjoint(prefix):
            return [*self._listed_by_hand(prefix)]

        folder = prefix[: prefix.rfind("/") + 1].rstrip("/") or None

        def objects() -> list[tuple[str, int]]:
            # From the beginning in each attempt: after a failure, obstore's stream says that it has
            # ended.
            batches = obstore.list(self._client(), folder, chunk_size=_LISTED_AT_ONCE)
            sizes = [(item["path"], item["size"]) for batch in batches for item in batch]
            return [(key, size) for key, size in sizes if key.startswith(prefix)]

        try:
            listed = self._do(prefix, objects)
        except _NotListed:
            return [*self._listed_by_hand(prefix)]

        # An empty object may be the marker of a folder, such as a/, which obstore calls a.
        if not all(size for _, size in listed):
            return [*self._listed_by_hand(prefix)]
        return [key for key, _ in listed]

    def exists(self, key: str) -> bool:
        import obstore

        client, path = self._at(key)
        try:
            self._do(key, obstore.head, client, path)
        except NoSuchObject:
            return False
        return True

    def delete(self, key: str) -> None:
        """Removes an object; does nothing if there is none."""
        import obstore

        client, path = self._at(key)
        with suppress(NoSuchObject):
            self._do(key, obstore.delete, client, path)

    def read(self, key: str) -> Content | None:
        """An object with its version; None: it does not exist."""
        import obstore

        client, path = self._at(key)
        try:
            answer = self._do(key, obstore.get, client, path)
            data = bytes(self._do(key, answer.bytes))
        except NoSuchObject:
            return None

        return Content(data, _version(answer.meta))

    def replace(self, key: str, data: bytes, version: str | None) -> str:
        """Writes if the object still has this version (None: if there is none); returns the new
        version.

        ObjectChanged: the object has another version by now. The request is sent once. After an
        answer that leaves open whether it was carried out, the object itself says so: its content
        is that of this write, or not.
        """
        import obstore

        client, path = self._at(key, retries=0)
        mode: Literal["create"] | UpdateVersion = "create"
        if version is not None:
            mode = {"version": version} if version.isdigit() else {"e_tag": version}

        try:
            written = obstore.put(client, path, data, mode=mode, use_multipart=False)
        except _errors() as error:
            refused = _refusal(self._what(key), error)
        else:
            return _version(written)

        stored = self.read(key)
        if stored is not None and stored.data == data and stored.version != version:
            return stored.version
        if (
            isinstance(refused, StoreUnavailable)
            and (None if stored is None else stored.version) == version
        ):
            raise refused
        if isinstance(refused, (ObjectChanged, StoreUnavailable)):
            raise ObjectChanged(str(refused))
        raise refused

    def check(self, key: str) -> None:
        """Refuses what no address can name."""
        parts = key.split("/")
        if not {".", ".."}.isdisjoint(parts) or not parts[-1]:
            raise StoreRefused(f"{self._what(key)}: {_NO_NAME}")

    def ask(self, key: str, request: Callable[[], urllib.request.Request]) -> bytes:
        """The store's answer to a request that obstore does not make."""

        def answer() -> bytes:
            try:
                # The store's own address.
                with urllib.request.urlopen(request(), timeout=CALL_SECONDS) as response:  # noqa: S310
                    return bytes(response.read())
            except urllib.error.HTTPError as error:
                with error:
                    raise refusal(
                        self._what(key), error.code, error.read().decode(errors="replace")
                    ) from None
            except (
                urllib.error.URLError,
                TimeoutError,
                ConnectionError,
                http.client.HTTPException,
            ) as error:
                raise StoreUnavailable(f"{self._what(key)}: no answer: {error}") from None

        return self._do(key, answer)

    def _client(self, retries: int = ATTEMPTS - 1, parent: str | None = None) -> ObjectStore:
        from obstore.exceptions import BaseError

        if (retries, parent) not in self._clients:
            try:
                self._clients[retries, parent] = self._connect(retries, parent)
            except BaseError as error:
                why = _NO_AUTHORITIES if "No CA certificates" in str(error) else _line(error)
                raise StoreRefused(f"{self.name}: {why}") from None

        return self._clients[retries, parent]

    def _at(self, key: str, retries: int = ATTEMPTS - 1) -> tuple[ObjectStore, str]:
        """The client for a key, and the key's name there."""
        self.check(key)
        parent, is_odd, path = f"/{key}".rpartition("//")
        return (
            (self._client(retries, quote(parent)), path) if is_odd else (self._client(retries), key)
        )

    def _listed_by_hand(self, prefix: str) -> Iterator[str]:
        """The keys that begin with `prefix`, including those that obstore cannot express."""
        place = ""
        while True:
            # The store's own answer.
            listed = ElementTree.fromstring(self.ask(prefix, partial(self._page, prefix, place)))  # noqa: S314
            # S3 and Cloud Storage name keys in Contents, Azure in Blobs/Blob.
            named = [*listed.iterfind("{*}Contents/{*}Key"), *listed.iterfind("Blobs/Blob/Name")]
            yield from (key.text or "" for key in named)
            place = (
                listed.findtext("{*}NextContinuationToken") or listed.findtext("NextMarker") or ""
            )
            if not place:
                return

    def _what(self, key: str) -> str:
        return f"{self.name}/{key}"

    def _do(self, key: str, act: Callable[..., T], *given: object, **options: object) -> T:
        return repeated(self._what(key), partial(act, *given, **options), self._sleep)


def repeated(what: str, act: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Acts, and again after transient answers: obstore repeats most, and takes some of S3's as
    final.
    """
    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return act()
        except StoreUnavailable:
            if attempt == ATTEMPTS:
                raise
        except _errors() as error:
            if _code(error) not in _REPEATED or attempt == ATTEMPTS:
                raise _refusal(what, error) from None
        sleep(pause)
        pause *= 2

    raise AssertionError("the last attempt returns or raises")


def refusal(what: str, status: int, text: str) -> StoreRefused:
    """The error for a store's answer, with its code and message. `status` 0: `text` says why there
    was none.
    """
    code = match[1] if (match := _CODE.search(text)) else ""
    message = " ".join(match[1].split())[:300] if (match := _MESSAGE.search(text)) else ""
    said = (
        f"{what}: "
        f"{code or (f'status {status}' if status else text)}{f': {message}' if message else ''}"
    )
    kind: type[StoreRefused] = StoreRefused

    if any(said_of_path in text for said_of_path in _NO_PATH):
        kind = _NotListed
    elif code in _CLOCK_CODES:
        said = f"{what}: {code}: the clock of this computer is off by more than 15 minutes: set it"
    elif code in _REPEATED or status in _TEMPORARY:
        kind = StoreUnavailable
    elif status in (401, 403):
        said = f"{said}; the machine's identity, or the launcher's, may not do this"
    elif status == 412 or code in _CHANGED:
        kind = ObjectChanged
    elif status == 404:
        kind = NoSuchObject
    elif "HTTP error" in text:
        said, kind = f"{what}: no answer: {text}", StoreUnavailable

    return kind(said)


def _refusal(what: str, error: Exception) -> StoreRefused:
    """The error for what obstore reports."""
    text = _line(error)
    status = (
        int(match[1])
        if (match := _STATUS.search(text))
        else 404 * isinstance(error, FileNotFoundError)
    )
    return refusal(what, status, text)


def _errors() -> tuple[type[Exception], ...]:
    """The errors of obstore."""
    from obstore.exceptions import BaseError

    return FileNotFoundError, ValueError, BaseError


def _line(error: Exception) -> str:
    """The message of an error of obstore, without the request in front and the values that follow;
    of these, it keeps why a request could not be sent."""
    said, _, values = str(error).partition("\n\nDebug source:")
    line = " ".join(said.split())
    while match := _AROUND.search(line):
        line = line[: match.start()] + line[match.end() :]
    cause = _CAUSE.search(values) if line.endswith("error sending request") else None
    return f"{line}: {' '.join(filter(None, cause.groups()))}" if cause else line


def _code(error: Exception) -> str:
    match = _CODE.search(_line(error))
    return match[1] if match else ""


def _version(of: object) -> str:
    """A generation, if the store counts these; S3's own versions do not take part in conditions."""
    version, tag = (of.get(part) for part in ("version", "e_tag"))  # type: ignore[attr-defined]
    return str(version if version is not None and str(version).isdigit() else tag)
