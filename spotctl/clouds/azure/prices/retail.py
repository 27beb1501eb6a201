"""The public price list over HTTP, which needs no account. Imported on first use: it loads
httpx."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import chain
from typing import Any

import httpx
import stamina

from pricing_data.errors import NoAnswer
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.errors import first_line

API_VERSION = "2023-01-01-preview"

_LATER = "try again later"

_RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# Every region sells one of these: their few prices name all regions without reading the whole list.
_SOLD_EVERYWHERE = ("Standard_D2s_v3", "Standard_D2s_v5")


def regions(settings: AzureSettings) -> tuple[str, ...]:
    """The regions in which machines are sold."""
    subject = "Azure regions in the retail prices"
    read = chain.from_iterable(
        pages(settings, subject, f"armSkuName eq '{size}'") for size in _SOLD_EVERYWHERE
    )
    names = {item.get("armRegionName") for page in read for item in page if isinstance(item, dict)}
    sold = tuple(sorted(name for name in names if isinstance(name, str) and name))

    if not sold:
        raise NoAnswer(
            f"{subject}: the answer names no region", "name some, for example --region eastus"
        )
    return sold


def pages(settings: AzureSettings, subject: str, criterion: str) -> Iterator[list[Any]]:
    """The price list's items for pay-as-you-go machines that fit a criterion, unparsed."""
    # The values of a filter are case-sensitive in this version of the API.
    filters = f"serviceName eq 'Virtual Machines' and {criterion} and priceType eq 'Consumption'"
    first = httpx.URL(settings.retail_prices_url)
    link = first.copy_merge_params({"api-version": API_VERSION, "$filter": filters})
    visited: set[httpx.URL] = set()

    with httpx.Client(timeout=settings.timeout_seconds) as client:
        while True:
            visited.add(link)
            body = _get(settings, client, link, subject)
            try:
                answer = json.loads(body)
            except ValueError as error:
                raise NoAnswer(
                    f"{subject}: the answer is not JSON: {first_line(error)}", _LATER
                ) from error
            if not isinstance(answer, dict) or not isinstance(answer.get("Items"), list):
                raise NoAnswer(f"{subject}: the answer has no list of Items", _LATER)
            yield answer["Items"]

            following = answer.get("NextPageLink")
            if not following:
                return
            try:
                link = httpx.URL(str(following))
            except httpx.InvalidURL as error:
                problem = f"{subject}: the link to the next page is malformed"
                raise NoAnswer(f"{problem}: {first_line(error)}", _LATER) from error
            if (link.scheme, link.host, link.port) != (first.scheme, first.host, first.port):
                server = f"{link.scheme}://{link.host}"
                problem = f"{subject}: the next page is on {server}, not on {first.host}"
                raise NoAnswer(problem, _LATER)
            if link in visited:
                raise NoAnswer(f"{subject}: the pages lead back to {link}", _LATER)


def _get(settings: AzureSettings, client: httpx.Client, url: httpx.URL, subject: str) -> bytes:
    try:
        for attempt in stamina.retry_context(
            on=partial(_retry_delay, settings),
            attempts=settings.retries + 1,
            timeout=None,
            wait_initial=settings.backoff_seconds,
            wait_max=settings.longest_wait_seconds,
            wait_jitter=settings.backoff_seconds,
        ):
            with attempt:
                return client.get(url).raise_for_status().content
    except httpx.HTTPStatusError as error:
        problem = f"{subject}: {url.host} answered HTTP {error.response.status_code}"
        raise NoAnswer(problem, _LATER, str(error.response.status_code)) from error
    except httpx.HTTPError as error:
        raise NoAnswer(
            f"{subject}: {url.host} did not answer: {first_line(error)}",
            "check the network, or try again later",
        ) from error

    raise AssertionError("the last attempt returns or raises")


def _retry_delay(settings: AzureSettings, error: Exception) -> bool | float:
    """Whether to try again; if the server says when, the delay in seconds."""
    if not isinstance(error, httpx.HTTPStatusError):
        return isinstance(error, httpx.TransportError)
    if error.response.status_code not in _RETRIED_STATUSES:
        return False
    seconds = retry_after(error.response.headers.get("Retry-After", ""), datetime.now(UTC))
    if seconds is None:
        return True
    return seconds if seconds <= settings.longest_wait_seconds else False


def retry_after(header: str, now: datetime) -> float | None:
    """The delay of a Retry-After header, which contains seconds or a date; `None` if it contains
    neither.
    """
    if header.strip().isdecimal():
        return float(header)
    try:
        return max((parsedate_to_datetime(header) - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
