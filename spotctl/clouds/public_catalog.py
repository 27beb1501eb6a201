"""Fetches the public SkyPilot catalog, which prices the machines of many clouds without an account.

A file is asked for with the tag of the one that was stored last, so that one which did not change
is not sent again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pricing_data.atomic_write import atomic_write
from pricing_data.catalog import Catalog
from pricing_data.errors import BadInput, NoAnswer, UnknownResource
from pricing_data.fetched_rows import FetchedRows
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask
from pricing_data.sources.public_catalog import (
    NAME,
    CatalogFile,
    OwnGpus,
    read_catalog,
)
from pricing_data.units import SECOND, Span, to_micros
from spotctl.clouds.errors import on_one_line

if TYPE_CHECKING:
    import httpx

    from spotctl.home.config import Settings

VERSIONS: Final = range(12, 3, -1)
"""The versions of the format that are looked for, the newest first: 9 is the newest that was seen
in November 2026, and earlier ones than 4 have no such files."""
_SECONDS, _ATTEMPTS, _PAUSE = 30.0, 4, 0.2
_NOT_FOUND, _NOT_MODIFIED = HTTPStatus.NOT_FOUND, HTTPStatus.NOT_MODIFIED
_CURE = "try again later, or set price_catalog_url to a mirror in spotctl's settings"


class _StoredFile(NamedTuple):
    """The file that was stored last: its version, the server's tag of it, and its moment."""

    version: int
    tag: str
    as_of: int


@dataclass(frozen=True, slots=True)
class PublicCatalog:
    """The catalog at an address; `folder` keeps what was stored last, and `known` is the catalog of
    machine types that the store has."""

    url: str
    folder: Path
    known: Callable[[], Catalog]

    @classmethod
    def of(cls, settings: Settings) -> PublicCatalog | None:
        """The catalog that the settings name; None if none is to be read."""
        from pricing_data.library import Library
        from pricing_data.store import PriceStore

        if not settings.price_catalog_url:
            return None
        store = PriceStore(settings.price_store)
        folder = settings.home / "catalog"
        return cls(settings.price_catalog_url, folder, lambda: Library(store).catalog)

    def task(
        self, cloud: str, request: FetchRequest, *, by_zone: bool, gpus_of: OwnGpus | None = None
    ) -> FetchTask:
        """The part of a fetch that brings a cloud's prices; see `read_catalog`."""
        rows = partial(self._rows, cloud, request, by_zone, gpus_of)
        return FetchTask(cloud, NO_REGION, NAME, rows, spot_prices=True)

    def _rows(
        self, cloud: str, request: FetchRequest, by_zone: bool, gpus_of: OwnGpus | None
    ) -> Iterator[FetchedRows]:
        regions = " ".join(sorted(request.regions)) or "*"
        key = f"{NAME} {request.history(cloud, regions)}"
        path = self.folder / f"{cloud}.json"
        stored = _stored(path, request.covered.get(key))
        subject = f"{cloud}: {NAME}"
        # The catalog has no list of its files that could be read without its whole history.
        for version in VERSIONS:
            url = f"{self.url.rstrip('/')}/catalogs/v{version}/{cloud}/vms.csv"
            tag = stored.tag if stored is not None and stored.version == version else ""
            answer = _answer(url, tag, subject)
            if answer.status_code == _NOT_FOUND:
                continue
            if answer.status_code == _NOT_MODIFIED and stored is not None:
                unchanged = CatalogFile(cloud, version, stored.as_of, b"")
                yield FetchedRows(notes=(f"{cloud}: {unchanged} has not changed",))
                return

            as_of = _changed(answer.headers.get("Last-Modified", ""), request.until)
            file = CatalogFile(cloud, version, as_of, answer.content)
            rows = read_catalog(file, request, self.known(), by_zone=by_zone, gpus_of=gpus_of)
            yield replace(rows, covered={key: Span(as_of, as_of)})
            kept = _StoredFile(version, answer.headers.get("ETag", ""), as_of)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as new:
                new.write_text(json.dumps(kept))
            return

        raise UnknownResource(f"{subject} at {self.url} has no file of this cloud", _CURE)


def _stored(path: Path, covered: Span | None) -> _StoredFile | None:
    """The file that was stored last, if the store still has all of its rows that are asked for."""
    try:
        stored = _StoredFile(*json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return stored if covered is not None and covered.end == stored.as_of else None


def _changed(header: str, now: int) -> int:
    """When a file changed: by the server or, where it does not say, now, when it was first seen."""
    try:
        changed = to_micros(parsedate_to_datetime(header))
    except (TypeError, ValueError, BadInput):
        changed = now
    return min(changed, now) // SECOND * SECOND


def _answer(url: str, tag: str, subject: str) -> httpx.Response:
    """The answer to a request for a file, unless it is the one with this tag."""
    import httpx
    import stamina

    headers = {"If-None-Match": tag} if tag else {}
    try:
        for attempt in stamina.retry_context(
            on=httpx.HTTPError, attempts=_ATTEMPTS, wait_initial=_PAUSE, wait_jitter=_PAUSE
        ):
            with attempt:
                answer = httpx.get(url, headers=headers, timeout=_SECONDS, follow_redirects=True)
                if answer.status_code not in (_NOT_FOUND, _NOT_MODIFIED):
                    answer.raise_for_status()
                return answer
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"{subject}: {url} cannot be read: {on_one_line(error, 200)}"
        raise NoAnswer(problem, _CURE) from error

    raise AssertionError("the last attempt returns or raises")
