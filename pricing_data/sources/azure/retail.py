"""The public price list over HTTP: no account needed, pages of up to a thousand items. Imported on first use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any

import httpx
import stamina

from pricing_data.errors import SourceUnavailable
from pricing_data.sources.azure.records import shortened
from pricing_data.sources.azure.settings import AzureSettings

API_VERSION = "2023-01-01-preview"

_WORTH_RETRYING = frozenset({408, 429, 500, 502, 503, 504})
# One of these is sold in every region, old or new: their few prices name the regions without reading the whole list.
_SOLD_EVERYWHERE = ("Standard_D2s_v3", "Standard_D2s_v5")


class RetailPrices:
    """The price list at `settings.retail_prices_url`."""

    def __init__(self, settings: AzureSettings) -> None:
        self._settings = settings

    def pages(self, region: str) -> Iterator[list[Any]]:
        """What is sold by consumption as a machine in a region, as the list's raw items."""
        return self._pages(f"Azure retail prices of {region}", f"armRegionName eq '{region}'")

    def regions(self) -> tuple[str, ...]:
        """The regions that machines are sold in."""
        asked = "Azure regions in the retail prices"
        pages = chain.from_iterable(self._pages(asked, f"armSkuName eq '{size}'") for size in _SOLD_EVERYWHERE)
        names = {item.get("armRegionName") for page in pages for item in page if isinstance(item, dict)}
        found = tuple(sorted(name for name in names if isinstance(name, str) and name))
        if not found:
            raise SourceUnavailable(f"{asked}: none is named (choose some, for example --region eastus)")
        return found

    def _pages(self, asked: str, criterion: str) -> Iterator[list[Any]]:
        # The values of a filter are case-sensitive in this version of the API.
        filters = f"serviceName eq 'Virtual Machines' and {criterion} and priceType eq 'Consumption'"
        first = httpx.URL(self._settings.retail_prices_url)
        link: httpx.URL | None = first.copy_merge_params({"api-version": API_VERSION, "$filter": filters})
        visited: set[httpx.URL] = set()
        with httpx.Client(timeout=self._settings.timeout_seconds) as client:
            while link is not None:
                visited.add(link)
                items, following = _page(asked, self._get(client, link, asked))
                yield items
                link = _next_page(asked, first, following)
                if link in visited:
                    raise SourceUnavailable(f"{asked}: the pages lead back to {link} (try again later)")

    def _get(self, client: httpx.Client, url: httpx.URL, asked: str) -> bytes:
        patience = self._settings
        try:
            for attempt in stamina.retry_context(
                on=self._worth_retrying,
                attempts=patience.retries + 1,
                timeout=None,
                wait_initial=patience.backoff_seconds,
                wait_max=patience.longest_wait_seconds,
                wait_jitter=patience.backoff_seconds,
            ):
                with attempt:
                    return client.get(url).raise_for_status().content
        except httpx.HTTPStatusError as error:
            raise SourceUnavailable(
                f"{asked}: {url.host} answered HTTP {error.response.status_code} (try again later)"
            ) from error
        except httpx.HTTPError as error:
            raise SourceUnavailable(
                f"{asked}: {url.host} did not answer: {shortened(error)} (is the network up? try again later)"
            ) from error
        raise AssertionError("the last attempt returns or raises")

    def _worth_retrying(self, error: Exception) -> bool | float:
        """Whether to ask again, and in how many seconds where the server says so."""
        if not isinstance(error, httpx.HTTPStatusError):
            return isinstance(error, httpx.TransportError)
        if error.response.status_code not in _WORTH_RETRYING:
            return False
        seconds = retry_after(error.response.headers.get("Retry-After", ""), datetime.now(UTC))
        if seconds is None:
            return True
        return seconds if seconds <= self._settings.longest_wait_seconds else False


def retry_after(header: str, now: datetime) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date; `None` where it holds neither."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max((parsedate_to_datetime(header) - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None


def _page(asked: str, body: bytes) -> tuple[list[Any], object]:
    """The items of an answer and its link to the next page."""
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise SourceUnavailable(f"{asked}: the answer is not JSON: {shortened(error)} (try again later)") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("Items"), list):
        raise SourceUnavailable(f"{asked}: the answer has no list of Items (try again later)")
    return answer["Items"], answer.get("NextPageLink")


def _next_page(asked: str, first: httpx.URL, link: object) -> httpx.URL | None:
    """The next page, on the same server: an answer does not get to choose whom we talk to."""
    if not link:
        return None
    try:
        url = httpx.URL(str(link))
    except httpx.InvalidURL as error:
        raise SourceUnavailable(f"{asked}: the link to the next page is broken: {shortened(error)}") from error
    if (url.scheme, url.host, url.port) != (first.scheme, first.host, first.port):
        raise SourceUnavailable(f"{asked}: the next page is said to be at {url.scheme}://{url.host}, not {first.host}")
    return url
