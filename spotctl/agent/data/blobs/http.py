"""HTTP with the standard library: requests that are repeated after temporary failures, and streamed answers."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from spotctl.agent.data.blobs.bucket import NoSuchObject, ObjectChanged, StoreRefused, StoreUnavailable

ATTEMPTS = 6
FIRST_PAUSE_SECONDS = 0.5
CALL_SECONDS = 60.0

_PIECE_BYTES = 1 << 20
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_CHANGED_CODES = ("BlobAlreadyExists", "ConditionalRequestConflict")
"""Codes of status 409 by which Azure and S3 refuse a write on a condition; otherwise they use status 412."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request; `what` names its object in messages."""

    method: str
    url: str
    what: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def address(self) -> str:
        return f"{self.url}?{urlencode(self.query, quote_via=quote)}" if self.query else self.url


Authorize = Callable[[HttpCall], Mapping[str, str]]
"""The headers that authenticate the caller; called for each attempt."""


def path_of(key: str) -> str:
    """A key as the path of a URL."""
    return quote(key, safe="/~")


class Caller:
    """Makes requests to one store. `sleep` waits between attempts."""

    def __init__(self, authorize: Authorize, sleep: Callable[[float], None] = time.sleep) -> None:
        self.authorize, self._sleep = authorize, sleep

    def call(self, call: HttpCall) -> tuple[bytes, Mapping[str, str]]:
        """The answer's body, and its headers in lower case. Temporary failures are retried a few times."""
        with self._open(call) as answer:
            return answer.read(), _lower(answer.headers)

    def stream(self, call: HttpCall) -> Iterator[bytes]:
        """The body in pieces. After a broken connection, continues where it stopped if the object is unchanged."""
        done, tag, failures = 0, "", 0
        while True:
            again = {"Range": f"bytes={done}-", "If-Match": tag} if done else {}
            headers = {**call.headers, **again}
            resumed = HttpCall(call.method, call.url, call.what, call.query, headers)
            with self._open(resumed) as answer:
                tag = answer.headers.get("ETag", "")
                try:
                    while piece := answer.read(_PIECE_BYTES):
                        done += len(piece)
                        yield piece
                    if answer.length in (None, 0):
                        return
                    raise http.client.IncompleteRead(b"", answer.length)
                except (OSError, http.client.HTTPException) as error:
                    failures += 1
                    if failures >= ATTEMPTS or not tag:
                        raise StoreUnavailable(
                            f"{call.what}: the connection broke after {done} bytes: {error}"
                        ) from None
            self._sleep(FIRST_PAUSE_SECONDS)

    def _open(self, call: HttpCall) -> http.client.HTTPResponse:
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(call)
            except urllib.error.HTTPError as error:
                with error:
                    failure = refusal(call.what, error.code, error.read())
                if error.code not in _TEMPORARY or attempt == ATTEMPTS:
                    raise failure from None
            except (OSError, http.client.HTTPException) as error:
                if attempt == ATTEMPTS:
                    reason = getattr(error, "reason", None) or error
                    raise StoreUnavailable(f"{call.what}: no answer: {reason}") from None
            self._sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, call: HttpCall) -> http.client.HTTPResponse:
        headers = {**call.headers, **self.authorize(call)}
        body = call.body if call.method in ("PUT", "POST") else None
        request = urllib.request.Request(call.address, body, headers, method=call.method)  # noqa: S310 - see `HttpCall`
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=CALL_SECONDS)  # noqa: S310
        return answer


def bucket_region(url: str) -> str:
    """The region of an S3 bucket, which S3 reveals without credentials; empty if S3 does not answer."""
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - S3's own address
    try:
        with _NO_REDIRECTS.open(request, timeout=CALL_SECONDS) as answer:
            return str(answer.headers.get("x-amz-bucket-region", ""))
    except urllib.error.HTTPError as error:
        # S3 may redirect us to the region or refuse access; both answers name the region.
        with error:
            return str(error.headers.get("x-amz-bucket-region", ""))
    except (OSError, http.client.HTTPException):
        return ""


class _KeepRedirects(urllib.request.HTTPRedirectHandler):
    """Returns redirects like any other answer."""

    def redirect_request(self, *_: object) -> None:
        return None


_NO_REDIRECTS = urllib.request.build_opener(_KeepRedirects)


def refusal(what: str, status: int, body: bytes) -> StoreRefused:
    """The error for a store's refusal, with the store's own message."""
    code, message = _reason(body)
    text = f"{what}: {code or f'status {status}'}{f': {message}' if message else ''}"
    if status in (401, 403):
        return StoreRefused(f"{text}; the machine's identity, or the launcher's, may not do this")
    if status == 412 or code in _CHANGED_CODES:
        return ObjectChanged(text)
    if status in _TEMPORARY:
        return StoreUnavailable(text)
    return NoSuchObject(text) if status == 404 else StoreRefused(text)


def elements(body: bytes, name: str) -> list[str]:
    """The texts of all elements with a name in an XML answer, whatever their namespace."""
    tree = ElementTree.fromstring(body).iter()  # noqa: S314 - from the store whose data we trust as much
    return [element.text or "" for element in tree if element.tag.rpartition("}")[2] == name]


def _reason(body: bytes) -> tuple[str, str]:
    try:
        code, message = (next(iter(elements(body, name)), "") for name in ("Code", "Message"))
    except ElementTree.ParseError:
        return "", " ".join(body[:200].decode(errors="replace").split())
    return code, " ".join(message.split())[:300]


def _lower(headers: http.client.HTTPMessage) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
