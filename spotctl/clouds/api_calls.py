"""Shared by the doors to all clouds: calls, texts of errors, repeated requests, settings, refusals of stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from pricing_data.errors import CloudError
from spotctl.agent.data.blobs.bucket import StoreRefused
from spotctl.clouds.base import MachineRequest
from spotctl.clouds.errors import PartlyListed
from spotctl.home.errors import BadRequest, SpotctlError

ApiRecord = Mapping[str, Any]
"""One record of an answer, as the JSON of an API gives it."""


class ApiCall(NamedTuple):
    """A call to a cloud, as error messages describe it: what is requested, and the permission that allows it."""

    what: str
    permission: str


def is_plain_http(endpoint: str | None) -> bool:
    """Whether a token sent to this endpoint could be read on the way; such endpoints are called without credentials."""
    return endpoint is not None and endpoint.lower().startswith("http://")


def first_line(error: BaseException, longest: int = 300) -> str:
    """The first line of an error's text, cut at `longest` characters: a proxy may answer with a whole page of HTML."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0].strip().rstrip(".")
    return line if len(line) <= longest else f"{line[:longest]}..."


def on_one_line(error: BaseException, longest: int = 300) -> str:
    """The whole text of an error without line breaks, cut at `longest` characters."""
    return " ".join(str(error).split())[:longest]


T = TypeVar("T")


def same_request(known: MachineRequest, other: MachineRequest) -> bool:
    """Whether two requests differ only in what may change when a request is repeated."""
    return _fixed(known) == _fixed(other)


def fingerprint(request: MachineRequest) -> str:
    """A hash of what must not change when a request is repeated: 16 hexadecimal digits."""
    fixed = (
        request.token,
        str(request.market),
        request.count,
        request.bid,
        dict(request.tags),
        None if request.payload is None else request.payload.to_json(),
        (request.image, request.identity, request.disk_gib, request.network),
        # Requests that earlier versions made keep their fingerprint.
        *(("close",) if request.close else ()),
        *((request.reservation,) if request.reservation else ()),
    )
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def check_settings(request: MachineRequest, provider: str) -> None:
    """Refuses settings of a cloud's machines on a provider whose machines have none."""
    for name in ("image", "identity", "disk_gib", "network"):
        if (value := getattr(request, name)) is not None:
            raise BadRequest(
                f"{name} is {value!r}, but machines of the {provider} provider have no {name}; leave it out"
            )


def as_far_as_listed(call: Callable[[], Sequence[T]]) -> tuple[tuple[T, ...], PartlyListed | None]:
    """The items of a list as far as they could be listed, and the error if some could not; None if all were."""
    try:
        return tuple(call()), None
    except PartlyListed as error:
        return error.listed, error


def each(calls: Iterable[Callable[[], object]]) -> None:
    """Makes all calls, even if one fails, so that all machines end; then raises the first failure."""
    failures: list[SpotctlError] = []
    for call in calls:
        try:
            call()
        except SpotctlError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _fixed(request: MachineRequest) -> MachineRequest:
    return replace(request, lease_until=0, secrets={}, tags=dict(request.tags))


def with_given(defaults: T, **given: str | None) -> T:
    """Settings with the user's values; None keeps the default."""
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]


@contextmanager
def refused_as_store() -> Iterator[None]:
    """Raises a `CloudError` as StoreRefused."""
    try:
        yield
    except CloudError as error:
        raise StoreRefused(str(error)) from None
